"""The view of the parameter groups that losses and policies see."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rl_training.engine.groups import Groups
from rl_training.engine.networks import Binding, BoundNetwork, Network, Networks
from rl_training.models.parts import CriticEnsemble


def ensemble(members: int = 4) -> CriticEnsemble:
    torch.manual_seed(0)
    return CriticEnsemble(members, 3, 2, (8,))


def parameters(module: nn.Module, scale: float = 1.0) -> dict[str, Tensor]:
    return {name: scale * tensor.detach().clone() for name, tensor in module.named_parameters()}


OBS, ACTIONS = torch.randn(5, 3), torch.randn(5, 2)


def test_a_bound_network_has_its_own_parameters_and_leaves_the_modules_alone() -> None:
    module, other = ensemble(), ensemble()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2.0)
    before = {name: id(parameter) for name, parameter in module.named_parameters()}
    bound: BoundNetwork[Tensor] = BoundNetwork(Network(module), parameters(other))
    assert torch.equal(bound(OBS, ACTIONS), other(OBS, ACTIONS))
    with pytest.raises(RuntimeError):
        bound(OBS, ACTIONS[:3])  # an error inside does not leave the wrong parameters behind
    assert {name: id(parameter) for name, parameter in module.named_parameters()} == before


@pytest.mark.parametrize(("index", "rows"), [(0, [0]), (2, [2]), (torch.tensor([3, 1]), [3, 1])])
def test_members_of_an_ensemble(index: int | Tensor, rows: list[int]) -> None:
    module = ensemble()
    bound: BoundNetwork[Tensor] = BoundNetwork(Network(module), parameters(module))
    torch.testing.assert_close(bound.members(index)(OBS, ACTIONS), module(OBS, ACTIONS)[rows])


def test_a_detached_network_is_used_and_not_trained() -> None:
    module = ensemble()
    params = {name: tensor.requires_grad_() for name, tensor in parameters(module).items()}
    bound: BoundNetwork[Tensor] = BoundNetwork(Network(module), params)
    actions = ACTIONS.clone().requires_grad_()
    value = bound.detached()(OBS, actions).sum()
    assert torch.equal(value, bound(OBS, actions).sum())
    value.backward()
    assert actions.grad is not None and all(tensor.grad is None for tensor in params.values())


class CriticNetworks(Networks):
    critic: BoundNetwork[Tensor]
    temperature: dict[str, Tensor]


def make_view() -> tuple[CriticNetworks, CriticEnsemble, Groups]:
    module = ensemble()
    groups = {
        "critic": parameters(module),
        "target_critic": parameters(module, 0.5),
        "temperature": {"log_alpha": torch.tensor(-1.0)},
    }
    return Binding(CriticNetworks, {"critic": module}).networks_of(groups), module, groups


def test_groups_are_networks_targets_and_tensors_by_name() -> None:
    nets, module, groups = make_view()
    assert torch.equal(nets.critic(OBS, ACTIONS), module(OBS, ACTIONS))
    target: BoundNetwork[Tensor] = BoundNetwork(Network(module), groups["target_critic"])
    assert torch.equal(nets.target.critic(OBS, ACTIONS), target(OBS, ACTIONS))
    assert nets.temperature["log_alpha"] is groups["temperature"]["log_alpha"]
    assert "critic" in nets and "critic" in nets.target
    assert "actor" not in nets and "temperature" not in nets.target


@pytest.mark.parametrize("of_targets", [False, True])
def test_a_group_that_is_not_there_is_named(of_targets: bool) -> None:
    nets, *_ = make_view()
    with pytest.raises(AttributeError, match=f"no parameter group '{'target_' * of_targets}actor'"):
        (nets.target if of_targets else nets).actor  # type: ignore[attr-defined]  # noqa: B018


def test_a_view_compiles_under_vmap_and_grad() -> None:
    _, module, groups = make_view()
    binding = Binding(CriticNetworks, {"critic": module})

    def loss(critic: dict[str, Tensor], rest: Groups) -> Tensor:
        nets = binding.networks_of({**rest, "critic": critic})
        values = nets.critic.members(1)(OBS, ACTIONS) - nets.target.critic(OBS, ACTIONS).amin(0)
        return values.square().mean() * nets.temperature["log_alpha"].exp()

    stacked = {group: {name: torch.stack([v, 2 * v]) for name, v in params.items()} for group, params in groups.items()}
    rest = {group: params for group, params in stacked.items() if group != "critic"}
    gradient = torch.func.vmap(torch.func.grad(loss))
    compiled = torch.compile(gradient, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(stacked["critic"], rest), gradient(stacked["critic"], rest))

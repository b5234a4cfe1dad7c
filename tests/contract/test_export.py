"""Exported policies: equal to their agents in every format, for every algorithm, space, memory and mask."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import own_networks
import pytest
import torch
from conftest import one_of_a_kind
from dict_envs import ACTIONS, OBSERVATIONS
from fresh_agents import VECTOR, fresh_agent, saved
from gymnasium import spaces
from masked_envs import SPACES as MASKED_ACTIONS

from rl_training.cli.main import main
from rl_training.core.checks import UserError
from rl_training.deploy.export import check as checking
from rl_training.deploy.export import formats, numpy_runner, tracing
from rl_training.deploy.export.contract import contract_path, describe_policy
from rl_training.deploy.export.exporting import export_agent, runner_name, verify_export
from rl_training.deploy.export.policy import Policy
from rl_training.envs.spaces import make_codecs
from rl_training.envs.tensor_codecs import actions_to_env, encode_tensors, input_arrays, sample_observations
from rl_training.run.agent import load_agent
from rl_training.tensors.observations import split

# Stops imports of the library and of torch, to see that a file needs neither.
ALONE = """
import sys
class Stop:
    def find_spec(self, name, *rest):
        if name.split('.')[0] in ('torch', 'rl_training'):
            raise ImportError(name)
sys.meta_path.insert(0, Stop())
"""


@pytest.mark.sweep
@pytest.mark.parametrize("algo", one_of_a_kind("ppo"))
def test_onnx_of_every_algorithm(algo: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    contract = check_export(fresh_agent(algo), tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    arrays = [*session.get_inputs(), *session.get_outputs()]
    assert [one.shape for one in arrays] == [one["shape"] for one in contract["inputs"] + contract["outputs"]]
    assert all(name == "Gemm" or rank == 2 for name, rank in products(tmp_path / "policy.onnx"))


def products(path: Path) -> list[tuple[str, int]]:
    """The products of an ONNX file with weights: the operation and the number of axes of the weights."""
    graph = pytest.importorskip("onnx").load(path).graph
    ranks = {one.name: len(one.dims) for one in graph.initializer}
    nodes = [node for node in graph.node if node.op_type in ("Gemm", "MatMul") and node.input[1] in ranks]
    assert nodes
    return [(node.op_type, ranks[node.input[1]]) for node in nodes]


@pytest.mark.parametrize(("algo", "last"), [("sac", ["Tanh", "Mul", "Clip"]), ("dqn", ["ArgMax"])])
def test_dense_layers_become_what_runtimes_fuse(algo: str, last: list[str], tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    done = export_agent(fresh_agent(algo), tmp_path / "policy.onnx")
    operations = [node.op_type for node in onnx.load(done.path).graph.node]
    assert operations == ["Gemm", "Relu", "Gemm", "Relu", "Gemm", *last]


@pytest.mark.parametrize("algo", one_of_a_kind("tqc"))
def test_torch_export_of_every_algorithm(algo: str, tmp_path: Path) -> None:
    check_export(fresh_agent(algo), tmp_path / "policy.pt2")


@pytest.mark.parametrize("algo", one_of_a_kind("rainbow_dqn", "drq"))
def test_numpy_of_every_algorithm(algo: str, tmp_path: Path) -> None:
    agent = fresh_agent(algo)
    if agent.spec.observation.images:
        with pytest.raises(
            UserError, match=r"layer encoder \(DrQCNN\) cannot be exported to numpy: it computes conv2d"
        ):
            export_agent(agent, tmp_path / "policy.npz")
        assert list(tmp_path.iterdir()) == []
    else:
        check_export(agent, tmp_path / "policy.npz")


def check_export(agent: Any, path: Path) -> dict[str, Any]:
    done = export_agent(agent, path)
    assert done.check.observations >= 1000 and done.check.max_difference <= 1e-5
    contract: dict[str, Any] = json.loads(done.contract_path.read_text())
    assert contract["algorithm"] == agent.config.algo and contract["agent"]["sha256"] == agent.digest()
    assert contract["outputs"][0]["name"] == "action" and contract["inputs"][0]["shape"][0] == "batch"
    assert done.latency_us["exported"] > 0
    assert verify_export(path, agent).problem is None
    return contract


SETTINGS: dict[str, dict[str, Any]] = {
    "lstm": {"recurrent": "lstm"},
    "gru": {"recurrent": "gru"},
    "layers": {"network": {"activation": "SiLU", "layer_norm": True, "dropout": 0.2}},
    "spectral": {"network": {"activation": "ELU", "spectral_norm": True}},
    "normalised": {"normalize_observations": True},
    "own": {"network": {"actor": own_networks.BatchNormNet}},
    "own features": {"network": {"features": own_networks.TiedAndFrozen}},
}


def cases_of_settings() -> list[Any]:
    always = {("gru", "npz"), ("own", "npz")}
    pairs = [(case, to) for case in SETTINGS for to in ("npz", "onnx")]
    return [pytest.param(*one, marks=() if one in always else pytest.mark.sweep) for one in pairs]


@pytest.mark.parametrize(
    ("wrappers", "frames"),
    [({"pixels": {}}, 3), ({"atari": {"frame_stack": 2}}, 2), ({"action_repeat": 2}, 1), (None, 1)],
)
def test_the_contract_has_the_number_of_stacked_frames(wrappers: Any, frames: int) -> None:
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"])
    object.__setattr__(agent.config, "env_kwargs", {} if wrappers is None else {"wrappers": wrappers})
    assert describe_policy(Policy(agent))["frames"] == frames


@pytest.mark.sweep
@pytest.mark.parametrize(("case", "to"), cases_of_settings())
def test_settings(case: str, to: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    agent = fresh_agent("ppo", VECTOR, ACTIONS["box"], batch_size=8, **SETTINGS[case])
    contract = check_export(agent, tmp_path / f"policy.{to}")
    assert ("memory" in contract["inside"]) == ("recurrent" in SETTINGS[case])
    assert ("normalisation" in contract["inside"]) == (case == "normalised")


def cases_of_spaces() -> list[Any]:
    """Every observation space with one action space, and every action space with one observation space."""
    pairs = [(name, "box") for name in OBSERVATIONS] + [("numbers", name) for name in ACTIONS]
    always = {("numbers", "multi_discrete")}
    return [pytest.param(*one, marks=() if one in always else pytest.mark.sweep) for one in dict.fromkeys(pairs)]


@pytest.mark.sweep
@pytest.mark.parametrize(("observation", "action"), cases_of_spaces())
def test_spaces(observation: str, action: str, tmp_path: Path) -> None:
    pictures = observation in ("mixed", "two images", "one image")
    if pictures:
        pytest.importorskip("onnxruntime")
    agent = fresh_agent("ppo", OBSERVATIONS[observation], ACTIONS[action])
    contract = check_export(agent, tmp_path / ("policy.onnx" if pictures else "policy.npz"))
    assert len(contract["observation_order"]) == len(agent.observation.leaves)


@pytest.mark.parametrize(
    "action", [pytest.param(one, marks=pytest.mark.sweep if one != "multi_discrete" else ()) for one in MASKED_ACTIONS]
)
def test_masks(action: str, tmp_path: Path) -> None:
    agent = fresh_agent("ppo", VECTOR, MASKED_ACTIONS[action], masked=True)
    contract = check_export(agent, tmp_path / "policy.npz")
    assert contract["inputs"][-1]["name"] == "action_mask" and contract["inputs"][-1]["dtype"] == "bool"


def test_unbounded_actions(tmp_path: Path) -> None:
    check_export(fresh_agent("ppo", VECTOR, spaces.Box(-np.inf, 3, (2,), np.float64)), tmp_path / "policy.npz")


def test_choices_have_whole_numbers_as_bounds() -> None:
    for space, bounds in ((spaces.Discrete(5, start=-2), (-2, 2)), (spaces.MultiDiscrete([3, 4]), (0, [2, 3]))):
        action = describe_policy(Policy(fresh_agent("ppo", VECTOR, space)))["outputs"][0]
        assert repr((action["low"], action["high"])) == repr(bounds)


def test_flags_are_sampled_as_flags_beside_normalised_numbers() -> None:
    codec, _ = make_codecs(spaces.Dict({"flags": spaces.MultiBinary(3), "x": VECTOR}), spaces.Discrete(2), masked=False)
    obs, _ = sample_observations(codec, np.random.default_rng(0), 20, (np.full(6, 0.5), np.ones(6)))
    assert np.isin(obs["flags"], (0, 1)).all() and not np.isin(obs["x"], (0, 1)).any()


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=list(OBSERVATIONS))
def test_tensor_codecs_equal_the_numpy_ones(observation: Any) -> None:
    rng = np.random.default_rng(0)
    codec, _ = make_codecs(observation, spaces.Discrete(4), masked=True)
    obs, mask = sample_observations(codec, rng, 7)
    rows, single = codec.read(obs, list(mask))  # type: ignore[arg-type]
    inputs = {name: torch.from_numpy(one) for name, one in input_arrays(codec, obs, mask).items()}
    expected, found = split(codec.spec, torch.from_numpy(rows)), encode_tensors(codec, inputs)
    assert not single and found.keys() == expected.keys()
    for name, one in expected.items():
        assert torch.equal(found[name].to(one.dtype), one), name


@pytest.mark.parametrize("space", [*ACTIONS.values(), *MASKED_ACTIONS.values(), spaces.Discrete(3, start=-2)], ids=str)
def test_actions_in_the_units_of_the_environment(space: Any) -> None:
    _, codec = make_codecs(VECTOR, space, masked=False)
    actions = codec.spec.sample(np.random.default_rng(0), 50)
    expected, found = codec.to_env(actions), actions_to_env(codec, torch.from_numpy(actions)).numpy()
    assert found.dtype == expected.dtype and np.array_equal(found, expected)


def test_files_run_without_this_library_and_torch(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    agent = fresh_agent("ppo", VECTOR, ACTIONS["box"], recurrent="gru", batch_size=8, normalize_observations=True)
    for name in ("policy.onnx", "policy.npz"):
        export_agent(agent, tmp_path / name)
    rng = np.random.default_rng(3)
    steps = rng.standard_normal((20, 5, 3)).astype(np.float32)
    np.save(tmp_path / "steps.npy", steps)
    program = ALONE + (
        "import numpy as np, onnxruntime\n"
        "from policy_runner import NumpyPolicy\n"
        "session, policy = onnxruntime.InferenceSession('policy.onnx'), NumpyPolicy('policy.npz')\n"
        "h = other = np.zeros((5, 8), np.float32)\n"
        "found = []\n"
        "for obs in np.load('steps.npy'):\n"
        "    action, h = session.run(['action', 'next_state.h'], {'obs': obs, 'state.h': h})\n"
        "    answer = policy({'obs': obs, 'state.h': other})\n"
        "    other = answer['next_state.h']\n"
        "    found.append([action, answer['action']])\n"
        "np.save('found.npy', found)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120, capture_output=True)
    found, state = np.load(tmp_path / "found.npy"), {}
    for number, obs in enumerate(steps):
        expected, state = agent.predict(obs, state=state)
        assert np.abs(found[number] - expected).max() < 1e-5


def test_the_runner_is_short() -> None:
    assert len(Path(numpy_runner.__file__).read_text().splitlines()) <= 80


def test_a_file_cannot_call_other_functions(tmp_path: Path) -> None:
    program = json.dumps(
        {"inputs": [], "steps": [["x", "fromfile", ["/etc/passwd"], None]], "outputs": {"action": "x"}}
    )
    np.savez(tmp_path / "policy.npz", program=np.array(program))
    with pytest.raises(KeyError, match="fromfile"):
        numpy_runner.NumpyPolicy(tmp_path / "policy.npz")({})


class CountsRows(own_networks.Branching):
    def forward(self, x: Any) -> Any:
        return self.dense(x) / len(x)


class CountsRowsFirst(own_networks.Branching):
    def forward(self, x: Any) -> Any:
        rows = len(x)
        return self.dense(x) / rows


class Bessel(own_networks.Branching):
    def forward(self, x: Any) -> Any:
        return torch.special.bessel_j0(self.dense(x))


class FFT(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.fft.rfft(x).abs()


class BatchMean(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x - x.sum(0) / int(x.shape[0])


def among_others(layer: torch.nn.Module) -> Any:
    def make(inputs: int, outputs: int) -> torch.nn.Module:
        first, last = torch.nn.Linear(inputs, 8), torch.nn.LazyLinear(outputs)
        made = torch.nn.Sequential(first, torch.nn.ReLU(), layer, last)
        made(torch.zeros(2, inputs))  # the size of the last layer
        return made

    return make


class ScaledBessel(own_networks.Branching):
    """Of this one the exporter reports another name than the layer's operation has."""

    def forward(self, x: Any) -> Any:
        return torch.special.i0e(self.dense(x))


@pytest.mark.parametrize(
    ("network", "to", "message"),
    [
        (
            own_networks.Branching,
            "pt2",
            r"layer actor.net \(Branching\) cannot be exported: what it computes depends on",
        ),
        (CountsRows, "pt2", r"layer actor.net \(CountsRows\) cannot be exported: .*x.shape\[0\]"),
        (
            Bessel,
            "onnx",
            r"layer actor.net.* cannot be exported to ONNX, which has no operation for special_bessel_j0",
        ),
        (ScaledBessel, "onnx", r"layer actor.net.* cannot be exported to ONNX, .* no operation for special_i0e"),
        (Bessel, "npz", r"layer actor.net \(Bessel\) cannot be exported to numpy: it computes special_bessel_j0"),
        (CountsRowsFirst, "pt2", r"layer actor.net \(CountsRowsFirst\) cannot be exported: .*x.shape\[0\]"),
        (among_others(FFT()), "npz", r"layer actor.net.2 \(FFT\) cannot be exported to numpy: it computes _fft_r2c"),
        (among_others(BatchMean()), "pt2", r"layer actor.net.2 \(BatchMean\) cannot be exported: .* as a constant"),
    ],
)
def test_what_cannot_be_exported_names_its_layer(
    network: Any, to: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"], network={"actor": network})
    with pytest.raises(UserError, match=message):
        export_agent(agent, tmp_path / f"policy.{to}")
    assert capsys.readouterr().err == "", "torch prints the graph of what it cannot trace"
    assert list(tmp_path.iterdir()) == []


class OwnGroupNorm(torch.nn.Module):
    """Group norm with weights that are not the identity's, of a vector and of channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.vector = torch.nn.Linear(inputs, 24), torch.nn.GroupNorm(4, 24)
        self.channels, self.last = torch.nn.GroupNorm(2, 6, eps=1e-3), torch.nn.Linear(24, outputs)
        for one in (self.vector, self.channels):
            torch.nn.init.normal_(one.weight)
            torch.nn.init.normal_(one.bias)

    def forward(self, x: Any) -> Any:
        return self.last(self.channels(self.vector(self.first(x)).unflatten(1, (6, 4))).flatten(1))


@pytest.mark.parametrize("to", ["pt2", "npz", pytest.param("onnx", marks=pytest.mark.sweep)])
def test_group_norm(to: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"], network={"actor": OwnGroupNorm})
    check_export(agent, tmp_path / f"policy.{to}")


class RoundedInside(own_networks.Branching):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x).bfloat16().float()


class BitsAsNumbers(own_networks.Branching):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x).view(torch.int32).float() * 1e-9


@pytest.mark.parametrize(
    ("settings", "to", "message"),
    [
        ({"precision": "bfloat16"}, "npz", "layer actor.* cannot be exported to numpy: it computes in bfloat16"),
        ({"precision": "bfloat16"}, "onnx", "layer actor.* cannot be exported to ONNX: it computes in bfloat16"),
        ({"network": {"actor": RoundedInside}}, "npz", r"layer actor\.net .* to numpy: it computes in bfloat16"),
        ({"network": {"actor": BitsAsNumbers}}, "npz", r"layer actor\.net .* to numpy: it computes view"),
    ],
)
def test_what_a_format_lacks_is_one_line(settings: dict[str, Any], to: str, message: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    with pytest.raises(UserError, match=message):
        export_agent(fresh_agent("sac", VECTOR, ACTIONS["box"], **settings), tmp_path / f"policy.{to}")
    assert list(tmp_path.iterdir()) == []


class DoubleInside(own_networks.Branching):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x).double().tanh().float()


@pytest.mark.parametrize("to", ["npz", pytest.param("onnx", marks=pytest.mark.sweep)])
def test_an_own_network_may_change_the_type(to: str, tmp_path: Path) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    check_export(fresh_agent("td3", VECTOR, ACTIONS["box"], network={"actor": DoubleInside}), tmp_path / f"policy.{to}")


def test_an_export_that_fails_leaves_torch_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(program: Any) -> Any:
        torch._C._functorch._vmap_increment_nesting(2, "error")  # as a graph does that ends before its vmap
        raise RuntimeError("in the middle")

    monkeypatch.setattr(tracing, "simplified", failing)
    with pytest.raises(UserError, match="in the middle"):
        export_agent(fresh_agent("td3", VECTOR, ACTIONS["box"]), tmp_path / "policy.npz")
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    torch.randn(1)  # an error inside vmap


def test_products_in_bfloat16_are_exported_to_torch(tmp_path: Path) -> None:
    check_export(fresh_agent("sac", VECTOR, ACTIONS["box"], precision="bfloat16"), tmp_path / "policy.pt2")


@pytest.mark.parametrize("wrong", [np.full_like, lambda state, _: state[:, :1]], ids=["NaN", "shape"])
def test_the_next_state_is_compared(wrong: Any) -> None:
    policy = Policy(fresh_agent("ppo", VECTOR, ACTIONS["box"], recurrent="gru", batch_size=8))
    run = formats.load_npz(formats.to_npz(policy), policy)

    def with_another_state(inputs: Any) -> Any:
        action, state = run(inputs)
        return [action, wrong(state, np.nan)]

    assert checking.check_policy(run, policy, "policy").max_difference < 1e-5
    message = r"differs from the agent by inf|policy's next_state\.h is float32 \(1, 1\), not"
    with pytest.raises(UserError, match=message):
        checking.check_policy(with_another_state, policy, "policy")


def test_an_agent_is_not_overwritten_by_its_export(tmp_path: Path) -> None:
    path = saved(fresh_agent("td3", VECTOR, ACTIONS["box"]), tmp_path, "agent.npz")
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"agent\.npz: is exported and would be overwritten"):
        export_agent(load_agent(path), path)
    assert path.read_bytes() == before


def test_weights_that_are_not_numbers_are_rejected(tmp_path: Path) -> None:
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"])
    next(iter(agent.learner.engine.groups()["actor"].values())).fill_(float("nan"))
    with pytest.raises(UserError, match=r"actor\..* of the agent holds NaN"):
        export_agent(agent, tmp_path / "policy.npz")


def test_nothing_is_written_where_the_file_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, other = (fresh_agent("td3", VECTOR, ACTIONS["box"], seeds=(seed,)) for seed in (0, 1))
    wrong = formats.to_npz(Policy(other))
    monkeypatch.setattr(formats.FORMATS["numpy"].__class__, "pack", property(lambda self: lambda policy: wrong), False)
    with pytest.raises(UserError, match="the exported policy differs from the agent by"):
        export_agent(agent, tmp_path / "policy.npz")
    assert list(tmp_path.iterdir()) == []


def test_choices_may_differ_where_they_are_equal() -> None:
    agent = fresh_agent("dqn")
    policy = Policy(agent)
    run = formats.load_npz(formats.to_npz(policy), policy)

    def other_choice(inputs: Any) -> Any:
        return [1 - run(inputs)[0]]

    with pytest.raises(UserError, match="chooses another action than the agent"):
        checking.check_policy(other_choice, policy, "policy")
    for params in agent.learner.engine.groups()["q"].values():
        params.zero_()  # now all choices are equally good
    assert checking.check_policy(other_choice, Policy(agent), "policy").ties > 100


def test_one_of_several_seeds(tmp_path: Path) -> None:
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"], seeds=(4, 7))
    done = export_agent(agent, tmp_path / "policy.npz", seed_index=1)
    assert done.contract["agent"]["seed"] == 7
    assert verify_export(done.path, agent, 1).problem is None
    assert "the agent has changed" in str(verify_export(done.path, agent, 0))
    with pytest.raises(UserError, match="seed_index must be >= 0 and < 2"):
        export_agent(agent, tmp_path / "policy.npz", seed_index=2)


def test_verify_reports_a_contract_that_is_not_the_policys(tmp_path: Path) -> None:
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"])
    done = export_agent(agent, tmp_path / "policy.npz")
    for name, value in (("algorithm", "dqn"), ("outputs", []), ("observation_order", ["x"]), ("spaces", None)):
        done.contract_path.write_text(json.dumps({**done.contract, name: value}))
        assert f"policy.npz.contract.json: {name} is not the agent's" in str(verify_export(done.path, agent))
    done.contract_path.write_text(json.dumps({**done.contract, "to": ["numpy"]}))
    with pytest.raises(UserError, match="to must be a format"):
        verify_export(done.path, agent)
    for name, value in (("seed", 7), ("step", 5)):
        false = {**done.contract, "agent": {**done.contract["agent"], name: value}}
        done.contract_path.write_text(json.dumps(false))
        assert "agent is not the agent's" in str(verify_export(done.path, agent))
    done.contract_path.write_text(json.dumps({**done.contract, "agent": {"sha256": "\x1b[2J\nequal"}}))
    with pytest.raises(UserError, match=r"agent\.sha256 must be a digest") as error:
        verify_export(done.path, agent)
    assert str(error.value).isprintable()
    done.contract_path.write_text(json.dumps(done.contract))
    stored = done.contract_path.rename(tmp_path / "stored.json")
    done.contract_path.symlink_to(stored)  # as version control for data does
    assert verify_export(done.path, agent).problem is None
    done.path.write_bytes(b"PK damaged")
    assert f"{done.path}: the file has changed" in str(verify_export(done.path, agent))


def test_an_archive_that_unpacks_to_more_than_itself_is_not_read(tmp_path: Path) -> None:
    policy = Policy(fresh_agent("td3", VECTOR, ACTIONS["box"]))
    np.savez_compressed(tmp_path / "policy.npz", program=np.zeros(10**6))
    with pytest.raises(UserError, match="not an exported policy: its arrays are compressed"):
        formats.load_npz((tmp_path / "policy.npz").read_bytes(), policy)


def test_a_users_file_is_not_overwritten_by_a_runner(tmp_path: Path) -> None:
    (tmp_path / "train_runner.py").write_text("print('mine')")
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"])
    with pytest.raises(UserError, match=r"train_runner\.py: is no runner of this library"):
        export_agent(agent, tmp_path / "train.npz")
    assert [one.name for one in tmp_path.iterdir()] == ["train_runner.py"]
    export_agent(agent, tmp_path / "policy.npz")
    assert export_agent(agent, tmp_path / "policy.npz").runner_path == tmp_path / "policy_runner.py"


@pytest.mark.parametrize(
    ("file", "runner"),
    [("policy.npz", "policy_runner.py"), ("my-policy.v2.npz", "my_policy_v2_runner.py"), ("7.npz", "_7_runner.py")],
)
def test_a_runner_can_be_imported(file: str, runner: str) -> None:
    assert runner_name(Path(file)) == runner and runner.removesuffix(".py").isidentifier()


def test_an_export_is_kept_whole_where_the_next_one_cannot_be_written(tmp_path: Path) -> None:
    first, second = (fresh_agent("td3", VECTOR, ACTIONS["box"], seeds=(seed,)) for seed in (0, 1))
    path = tmp_path / "policy.npz"
    export_agent(first, path)
    contract = contract_path(path).read_bytes()
    contract_path(path).unlink()
    contract_path(path).mkdir()  # in the place of a full disk: the last of the files cannot be written
    with pytest.raises(UserError, match="cannot be written"):
        export_agent(second, path)
    contract_path(path).rmdir()
    contract_path(path).write_bytes(contract)
    assert verify_export(path, first).problem is None
    assert len(list(tmp_path.iterdir())) == 3


def test_an_agents_digest_does_not_depend_on_the_version_that_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = fresh_agent("td3", VECTOR, ACTIONS["box"])
    before = agent.digest()
    monkeypatch.setattr("rl_training.run.agent.__version__", "9.9")
    assert agent.digest() == before


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    agent, changed = (fresh_agent("td3", VECTOR, ACTIONS["box"], seeds=(seed,)) for seed in (0, 1))
    path, other = saved(agent, tmp_path), saved(changed, tmp_path, "other.safetensors")
    npz, pt2 = tmp_path / "out" / "policy.npz", tmp_path / "policy.pt2"
    assert main(["export", str(path), "--to", "numpy", "-o", str(npz)]) == 0
    assert "checked  1004 observations" in capsys.readouterr().out
    assert (npz.parent / "policy_runner.py").exists()
    assert main(["verify", str(npz), str(path)]) == 0
    assert main(["verify", str(npz), str(other), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not answer["equal"] and "the agent has changed since the export" in answer["problem"]

    assert main(["export", str(path), "-o", str(pt2)]) == 0
    assert main(["export", str(path), "-o", str(pt2.with_suffix(".npz"))]) == 0  # beside it, with a contract of its own
    monkeypatch.setattr(torch.export, "load", lambda *_: pytest.fail("a .pt2 file was loaded"))
    assert main(["verify", str(pt2), str(path)]) == 0
    pt2.write_bytes(pt2.read_bytes() + b"x")
    assert main(["verify", str(pt2), str(path)]) == 1
    assert "the file has changed since its export" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "{agent}", "-o", "policy.bin"], "must end in .onnx, .pt2, .npz"),
        (["export", "{agent}", "--to", "onxx", "-o", "policy.onnx"], "did you mean"),
        (["export", "{agent}", "--to", "torch", "-o", "policy.onnx"], "must end in .pt2 for torch"),
        (["export", "missing", "-o", "policy.onnx"], "no such file"),
        (["verify", "missing.onnx", "{agent}"], "no such file"),
        (["verify", "{agent}", "{agent}"], "must end in"),
        (["verify", "{folder}/good.npz", "{agent}", "--seed-index", "4"], "seed_index must be >= 0 and < 1"),
        (["serve", "{agent}", "--port", "0", "--seed-index", "4"], "seed_index must be >= 0 and < 1"),
        (["verify", "{folder}/plain.npz", "{agent}"], "plain.npz.contract.json: no such file"),
        (["verify", "{folder}/odd.npz", "{agent}"], "odd.npz.contract.json: not a contract"),
    ],
)
def test_invalid_commands(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(fresh_agent("td3", VECTOR, ACTIONS["box"]), tmp_path)
    for name in ("plain.npz", "odd.npz", "good.npz"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "odd.npz.contract.json").write_text("[]")
    contract = {"format": 1, "to": "numpy", "sha256": "0" * 64, "agent": {"sha256": "0" * 64}}
    (tmp_path / "good.npz.contract.json").write_text(json.dumps(contract))
    assert main([word.format(agent=path, folder=tmp_path) for word in words]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and message in errors[0]


def test_a_managed_agent_exports_itself(finished_run: Any, tmp_path: Path) -> None:
    import rl_training

    managed = rl_training.load(finished_run("rainbow_dqn").run_dir)
    done = managed.export(tmp_path / "policy.npz")
    found = numpy_runner.NumpyPolicy(done.path)({"obs": [[0.1, 0, 0, 0]]})["action"][0]
    assert found == managed.predict([0.1, 0, 0, 0])

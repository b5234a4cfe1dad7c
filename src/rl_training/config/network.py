"""The settings of networks and optimizers: `network:` and `optimizer:` of every algorithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from rl_training.config.fields import above, at_least, check, left_open_interval, one_of, right_open_interval, setting
from rl_training.config.objects import python_object
from rl_training.core.checks import require

KINDS = ("mlp", "simba")
SIMBA_SIZES = {"actor": (128,), "critic": (512, 512)}  # the width of each residual block, as in the paper
SIMBA_EXPANSION = 4  # the inner layer of a block is so many times as wide
# Names of torch.nn modules without parameters.
ACTIVATIONS = (
    "ReLU", "Tanh", "ELU", "GELU", "SiLU", "LeakyReLU", "Mish", "SELU", "CELU", "ReLU6", "Softplus", "Softsign",
    "Sigmoid", "Hardtanh", "Hardswish", "Identity",
)  # fmt: skip
INITIAL_WEIGHTS = ("default", "orthogonal", "xavier_uniform", "kaiming_uniform")
MAX_LAYERS = 100
ModuleFunction = Callable[..., Any]  # a class or function that makes an nn.Module


def check_sizes(name: str, sizes: Sequence[int]) -> None:
    """Reject sizes of layers below 1, and too many layers."""
    require(all(size >= 1 for size in sizes), name, "sizes >= 1")
    require(len(sizes) <= MAX_LAYERS, name, f"at most {MAX_LAYERS} sizes")


class HiddenLayers(tuple[int, ...]):
    """The sizes of a network's hidden layers, with what each layer is made of; or the user's own network instead."""

    options: LayerSettings
    module: ModuleFunction | None
    name: str  # for messages: `network.critic`

    def __new__(
        cls, sizes: Sequence[int], options: LayerSettings, module: ModuleFunction | None = None, name: str = "network"
    ) -> HiddenLayers:
        made = super().__new__(cls, sizes)
        made.options, made.module, made.name = options, module, name
        return made

    @classmethod
    def of(cls, sizes: Sequence[int]) -> HiddenLayers:
        """The layers themselves, or plain sizes as layers with the defaults of `LayerSettings`."""
        return sizes if isinstance(sizes, HiddenLayers) else cls(sizes, PLAIN)

    @property
    def dense_sizes(self) -> tuple[int, ...]:
        """The outputs of every hidden dense layer; `simba` has an embedding and two in each block."""
        if not self.is_simba:
            return tuple(self)
        return (self[0], *(size for width in self for size in (SIMBA_EXPANSION * width, width)))

    @property
    def is_simba(self) -> bool:
        """Whether the layers are SimBa's residual blocks."""
        return self.module is None and self.options.kind == "simba"

    def resized(self, sizes: Sequence[int]) -> HiddenLayers:
        """Layers of the same kind with other sizes."""
        return HiddenLayers(sizes, self.options, self.module, self.name)


@dataclass(frozen=True)
class LayerSettings:
    """What the hidden layers of a network are made of."""

    kind: str = setting("mlp", one_of(*KINDS))  # dense layers, or simba: residual blocks (Lee et al. 2025)
    # null: the algorithm's `hidden_sizes`; of simba, the width of each block: actor [128], critics [512, 512]
    hidden_sizes: tuple[int, ...] | None = setting(None)
    activation: str = setting("ReLU", one_of(*ACTIVATIONS))  # by the name of its class in torch.nn
    layer_norm: bool = setting(False)  # before each activation
    dropout: float = setting(0.0, right_open_interval(0, 1))  # probability, of each hidden layer, in training
    spectral_norm: bool = setting(False)  # of the weights of hidden layers (Miyato et al. 2018)

    def __post_init__(self) -> None:
        check(self)
        check_sizes("hidden_sizes", self.hidden_sizes or ())

    @property
    def only_relu(self) -> bool:
        """Whether nothing but a ReLU follows a dense layer."""
        return self.activation == "ReLU" and not self.layer_norm and not self.dropout


PLAIN = LayerSettings()


@dataclass(frozen=True)
class LayerChanges:
    """Changes of `LayerSettings` for the actor or the critics; null: as in `network`."""

    kind: str | None = setting(None, one_of(*KINDS))
    hidden_sizes: tuple[int, ...] | None = setting(None)
    activation: str | None = setting(None, one_of(*ACTIVATIONS))
    layer_norm: bool | None = setting(None)
    dropout: float | None = setting(None, right_open_interval(0, 1))
    spectral_norm: bool | None = setting(None)

    def __post_init__(self) -> None:
        check(self)
        check_sizes("hidden_sizes", self.hidden_sizes or ())


@dataclass(frozen=True)
class NetworkSettings(LayerSettings):
    """The networks of an algorithm. Classes and functions come from Python or the command line, never from a file."""

    SHORTHAND: ClassVar[str] = "kind"

    initial_weights: str = setting("default", one_of(*INITIAL_WEIGHTS))  # default: the algorithm's own
    # (observation: ArraySpec) -> module: observations to (batch, features); null: images by convolutions, vectors as is
    features: ModuleFunction | None = None
    # Changes for the actor, or its whole network: (inputs, outputs) -> module: (batch, inputs) to (batch, outputs)
    actor: LayerChanges | ModuleFunction | None = None
    critic: LayerChanges | ModuleFunction | None = None  # the same for critics, values and Q networks

    def layers(self, role: str, sizes: Sequence[int]) -> HiddenLayers:
        """The hidden layers of a role, `actor` or `critic`; `sizes` are those of the algorithm's own settings."""
        changes = getattr(self, role)
        name = f"network.{role}"
        if changes is not None and not isinstance(changes, LayerChanges):
            return HiddenLayers((), PLAIN, python_object(changes, name), name)
        values = {one.name: getattr(self, one.name) for one in fields(LayerSettings)}
        if changes is not None:
            given = {one.name: getattr(changes, one.name) for one in fields(changes)}
            values |= {key: value for key, value in given.items() if value is not None}
        options = LayerSettings(**values)
        if options.kind == "simba":
            sizes = SIMBA_SIZES[role]
        return HiddenLayers(sizes if options.hidden_sizes is None else options.hidden_sizes, options, None, name)


    def check_kinds(self, allowed: Sequence[str]) -> None:
        """Reject layers of a kind that the algorithm cannot take, and options that do not go together."""
        for role in ("actor", "critic"):
            changes = getattr(self, role)
            if changes is not None and not isinstance(changes, LayerChanges):
                continue
            options = self.layers(role, ()).options
            names = {
                one.name: f"network.{role}.{one.name}" if getattr(changes, one.name, None) is not None
                else f"network.{one.name}"
                for one in fields(LayerSettings)
            }  # fmt: skip
            kind, sizes = options.kind, options.hidden_sizes
            require(kind in allowed, names["kind"], f"{' or '.join(allowed)} for this algorithm, got {kind!r}")
            if kind == "simba":
                for name in ("layer_norm", "dropout", "spectral_norm"):
                    what = "left out where kind is simba, whose blocks have a layer norm"
                    require(not getattr(options, name), names[name], what)
                equal = sizes is None or len(set(sizes)) == 1
                require(equal, names["hidden_sizes"], f"one width for every block of simba, got {list(sizes or ())}")


@dataclass(frozen=True)
class TanhNetworkSettings(NetworkSettings):
    """The networks of an algorithm whose hidden layers end in a tanh unless another activation is given."""

    activation: str = setting("Tanh", one_of(*ACTIVATIONS))  # by the name of its class in torch.nn


@dataclass(frozen=True)
class NormalizedNetworkSettings(NetworkSettings):
    """The networks of an algorithm whose hidden layers are normalised unless it is switched off."""

    layer_norm: bool = setting(True)  # before each activation


@dataclass(frozen=True)
class DropoutChanges(LayerChanges):
    """Changes for critics whose hidden layers have dropout and layer normalisation unless they are switched off."""

    layer_norm: bool | None = setting(True)
    dropout: float | None = setting(0.01, right_open_interval(0, 1))


@dataclass(frozen=True)
class DropoutNetworkSettings(NetworkSettings):
    """The networks of an algorithm whose critics have dropout and layer normalisation."""

    # Changes for the critics, with `layer_norm` true and `dropout` 0.01 unless given; or their whole network
    critic: DropoutChanges | ModuleFunction | None = field(default_factory=DropoutChanges)


OPTIMIZERS = ("Adam", "AdamW", "RMSprop", "RAdam", "SGD")
OPTIONS_OF = {  # the options of each optimizer, besides weight_decay
    "Adam": ("betas", "eps"),
    "AdamW": ("betas", "eps"),
    "RAdam": ("betas", "eps"),
    "RMSprop": ("alpha", "eps", "momentum", "centered"),
    "SGD": ("momentum", "dampening", "nesterov"),
}


@dataclass(frozen=True)
class OptimizerSettings:
    """An optimizer by its name in torch.optim, with options of the same names; null: torch's default, `eps` apart."""

    SHORTHAND: ClassVar[str] = "name"

    name: str = setting("Adam", one_of(*OPTIMIZERS))
    weight_decay: float | None = setting(None, at_least(0))  # default: 0, AdamW 0.01
    betas: tuple[float, float] | None = setting(None, right_open_interval(0, 1))  # Adam, AdamW, RAdam
    eps: float | None = setting(None, above(0))  # default: `adam_eps`
    momentum: float | None = setting(None, right_open_interval(0, 1))  # RMSprop, SGD
    alpha: float | None = setting(None, left_open_interval(0, 1))  # RMSprop: of its running mean of squares
    centered: bool | None = setting(None)  # RMSprop
    dampening: float | None = setting(None, right_open_interval(0, 1))  # SGD
    nesterov: bool | None = setting(None)  # SGD

    def __post_init__(self) -> None:
        check(self)
        for name in set(self.options) - {"weight_decay"}:
            allowed = OPTIONS_OF[self.name]
            require(name in allowed, name, f"left out for {self.name}, which takes {', '.join(allowed)}")
        require(self.name != "RAdam" or self.betas is None or self.betas[1] > 0, "betas", "> 0 in their second entry")
        if self.nesterov:
            require(bool(self.momentum) and not self.dampening, "nesterov", "false without momentum or with dampening")

    @property
    def options(self) -> dict[str, Any]:
        """The options that are given."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "name"}
        return {name: value for name, value in values.items() if value is not None}

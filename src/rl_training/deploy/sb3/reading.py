"""Reads model files of Stable-Baselines3: plain JSON and weights. What is pickled in them is never loaded."""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.core.checks import UserError, one_line, shown
from rl_training.files.atomic import MAX_JSON_BYTES, parse_json

DATA, WEIGHTS, VARIABLES = "data", "policy.pth", "pytorch_variables.pth"
MAX_WEIGHT_BYTES = 2**31
FLATTEN = "<class 'stable_baselines3.common.torch_layers.FlattenExtractor'>"


@dataclass(frozen=True)
class SavedModel:
    """What a model file says: the values of its JSON, its weights, and further tensors by name."""

    path: Path
    values: dict[str, Any]
    weights: dict[str, Tensor]
    variables: dict[str, Tensor]
    taken: set[str] = field(default_factory=set)  # the names of the weights asked for so far

    def weight(self, name: str) -> Tensor:
        """A weight in float32; a KeyError where there is none."""
        self.taken.add(name)
        return self.weights[name].float()

    def policy_kwargs(self) -> dict[str, Any]:
        """The keywords of its policy; where they hold classes, their names as text."""
        found = self.values.get("policy_kwargs")
        return found if isinstance(found, dict) else {}

    @property
    def policy_module(self) -> str:
        """The module of its policy's class, which tells the algorithm."""
        found = self.values.get("policy_class")
        return str(found.get("__module__")) if isinstance(found, dict) else ""

    def activation(self, default: str) -> str:
        """The name of the activation between hidden layers."""
        given = self.policy_kwargs().get("activation_fn")
        if given is None:
            return default
        name = re.fullmatch(r"<class 'torch\.nn\.modules\.\w+\.(\w+)'>", str(given))
        if name is None:
            raise UserError(f"{self.path}: activation_fn must be a class of torch.nn, got {shown(given)}")
        return name[1]

    def check_extractor(self) -> None:
        """Reject an extractor of features by its class: one without weights leaves no other trace."""
        given = self.policy_kwargs().get("features_extractor_class")
        if given not in (None, FLATTEN):
            raise UserError(f"{self.path}: features_extractor_class is not supported, got {shown(given)}")

    def check_all_taken(self) -> None:
        """Reject weights that nothing has asked for, since the policy would act without them."""
        for name in self.weights:
            # Target networks are copies, which are made anew.
            if name not in self.taken and not name.partition(".")[0].endswith("_target"):
                raise UserError(f"{self.path}: its policy has {shown(name)}; only dense policies are supported")


def read_model(path: Path) -> SavedModel:
    """Read a model file; a damaged or hostile one is rejected in one line."""
    if not path.exists():
        raise UserError(f"{path}: no such file")
    try:
        with zipfile.ZipFile(path.resolve()) as archive:
            data = _member(archive, path, DATA, MAX_JSON_BYTES)
            weights = _tensors(_member(archive, path, WEIGHTS, MAX_WEIGHT_BYTES), path, WEIGHTS)
            known = VARIABLES in archive.namelist()
            extra = _member(archive, path, VARIABLES, MAX_WEIGHT_BYTES) if known else b""
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise UserError(f"{path}: not a model of Stable-Baselines3 ({one_line(error)})") from error
    values = parse_json(data, path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a model of Stable-Baselines3 (its {DATA} is no JSON object)")
    return SavedModel(path, values, weights, _tensors(extra, path, VARIABLES) if extra else {})


def _member(archive: zipfile.ZipFile, path: Path, name: str, limit: int) -> bytes:
    if name not in archive.namelist():
        raise UserError(f"{path}: not a model of Stable-Baselines3 (it has no {name})")
    if archive.getinfo(name).file_size > limit:  # before it is unpacked
        raise UserError(f"{path}: {name} has more than {limit} bytes")
    return archive.read(name)


def _tensors(data: bytes, path: Path, name: str) -> dict[str, Tensor]:
    """Tensors by name; anything else in the file is rejected, and never executed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that are rejected anyway
            found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError for code, others for damage
        raise UserError(f"{path}: {name} must hold nothing but tensors ({type(error).__name__})") from error
    if not isinstance(found, dict):
        return {} if found is None and name == VARIABLES else _reject(path, name)
    if not all(isinstance(key, str) and isinstance(one, Tensor) for key, one in found.items()):
        _reject(path, name)
    return {key: one.detach() for key, one in found.items()}


def _reject(path: Path, name: str) -> dict[str, Tensor]:
    raise UserError(f"{path}: {name} must hold tensors by name")

"""Reads model files of Stable-Baselines3: plain JSON and weights. What is pickled in them is never loaded."""

from __future__ import annotations

import io
import pickletools
import re
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from rl_training.core.checks import UserError, one_line, shown
from rl_training.files.archives import open_archive, open_member
from rl_training.files.atomic import MAX_JSON_BYTES, parse_json

DATA, WEIGHTS, VARIABLES = "data", "policy.pth", "pytorch_variables.pth"
MAX_WEIGHT_BYTES = 2**31
MAX_UNPACKED = 100  # times the size of the whole file: the package writes without compression
MAX_TENSORS = 1000
MAX_PICKLE_BYTES = 2**20  # the names, types and shapes of so many
# All that torch.save names for a dictionary of tensors. Much else that torch would load takes memory that no file has.
PLAIN = re.compile(r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|parameter)|torch \w+Storage")
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FLATTEN = "<class 'stable_baselines3.common.torch_layers.FlattenExtractor'>"


@dataclass(frozen=True)
class SavedModel:
    """What a model file says: the values of its JSON, its weights, and further tensors by name."""

    path: Path
    values: dict[str, Any]
    weights: dict[str, Tensor]
    variables: dict[str, Tensor]
    weight_bytes: int  # of the file with the weights
    taken: dict[str, int] = field(default_factory=dict)  # the bytes of the weights asked for so far

    def weight(self, name: str) -> Tensor:
        """A weight in float32; a KeyError where there is none."""
        found = self.weights[name]
        self.taken[name] = found.numel() * found.element_size()
        if sum(self.taken.values()) > self.weight_bytes:  # views that repeat what is stored once
            raise UserError(f"{self.path}: {shown(name)} is of shape {tuple(found.shape)}, its file is smaller")
        return self._float32(name, found)

    def variable(self, name: str) -> Tensor | None:
        """A further tensor of one number, in float32; None where there is none."""
        found = self.variables.get(name)
        if found is None or found.numel() != 1:
            return None
        return self._float32(name, found).reshape(())

    def _float32(self, name: str, found: Tensor) -> Tensor:
        if found.dtype not in FLOATS or found.layout != torch.strided or found.device.type != "cpu":
            raise UserError(f"{self.path}: {shown(name)} must be dense floats, got {found.dtype}")
        result = found.float()
        if not result.isfinite().all():
            raise UserError(f"{self.path}: {shown(name)} has NaN or infinite numbers")
        return result

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
    if not path.is_file():  # opening a pipe might never end
        raise UserError(f"{path}: not a regular file")
    with open_archive(path, f"{path}: not a model of Stable-Baselines3") as archive:
        data = _member(archive, path, DATA, MAX_JSON_BYTES)
        stored = _member(archive, path, WEIGHTS, MAX_WEIGHT_BYTES)
        extra = _member(archive, path, VARIABLES, MAX_WEIGHT_BYTES) if VARIABLES in archive.namelist() else b""
    values = parse_json(data, path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: not a model of Stable-Baselines3 (its {DATA} is no JSON object)")
    weights, variables = _tensors(stored, path, WEIGHTS), _tensors(extra, path, VARIABLES) if extra else {}
    return SavedModel(path, values, weights, variables, len(stored))


def _member(archive: zipfile.ZipFile, path: Path, name: str, limit: int) -> bytes:
    if name not in archive.namelist():
        raise UserError(f"{path}: not a model of Stable-Baselines3 (it has no {name})")
    limit = min(limit, MAX_UNPACKED * path.stat().st_size)
    if archive.getinfo(name).file_size > limit:  # before it is unpacked
        raise UserError(f"{path}: {name} has more than {limit} bytes")
    with open_member(archive, name, f"{path}: {name}") as member:
        return member.read()


def _tensors(data: bytes, path: Path, name: str) -> dict[str, Tensor]:
    """Tensors by name; anything else in the file is rejected, and never executed."""
    checked = _checked(data, path, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that are rejected anyway
            found = torch.load(checked, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError for code, others for damage
        raise UserError(f"{path}: {name} must hold nothing but tensors ({type(error).__name__})") from error
    if not isinstance(found, dict):
        return {} if found is None and name == VARIABLES else _reject(path, name)
    if not all(isinstance(key, str) and isinstance(one, Tensor) for key, one in found.items()):
        _reject(path, name)
    if len(found) > MAX_TENSORS:
        raise UserError(f"{path}: {name} has {len(found)} tensors, at most {MAX_TENSORS} are expected")
    return {key: one.detach() for key, one in found.items()}


def _checked(data: bytes, path: Path, name: str) -> IO[bytes]:
    """A copy of an archive; what takes more memory than `data` once loaded is rejected: torch.save compresses nothing.

    A copy, since torch finds the members by other rules: of two archives in one file it may load the other one.
    """
    wrong, copy = f"{path}: {name} must hold nothing but tensors", io.BytesIO()
    with open_archive(io.BytesIO(data), wrong) as archive, zipfile.ZipFile(copy, "w") as copied:
        members = archive.infolist()
        if any(one.compress_type for one in members) or sum(one.file_size for one in members) > len(data):
            raise UserError(f"{path}: {name} must not be compressed, as torch.save writes it")
        for member, size in {one.filename: one.file_size for one in members}.items():
            pickled = member.lower().endswith(".pkl")  # torch ignores case
            if pickled and size > MAX_PICKLE_BYTES:
                raise UserError(f"{path}: {name} describes its tensors in {size} bytes")
            with open_member(archive, member, f"{path}: {name}") as file:
                content = file.read()
            if pickled:
                _check_plain(content, wrong)
            copied.writestr(member, content)
    copy.seek(0)
    return copy


def _check_plain(pickled: bytes, wrong: str) -> None:
    """Reject a pickle that names anything but plain tensors; it is parsed, not loaded."""
    try:
        named = [str(argument) for code, argument, _ in pickletools.genops(pickled) if code.name == "GLOBAL"]
    except Exception as error:  # whatever damage makes of the parser
        raise UserError(f"{wrong} ({one_line(error)})") from error
    for one in named:
        if not PLAIN.fullmatch(one):
            raise UserError(f"{wrong}, got {shown(one)}")


def _reject(path: Path, name: str) -> dict[str, Tensor]:
    raise UserError(f"{path}: {name} must hold tensors by name")

"""Datasets in memory, read like files: the same names, the same checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_training.core.checks import UserError, one_line, shown
from rl_training.data.datasets.array_store import Array
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.envs.spaces import ObservationCodec

Dataset = Mapping[str, Any] | TransitionDataset  # with actions in the environment's units
WHERE = "dataset"  # its name in messages
OBSERVATIONS = ("observations", "obs", "next_observations", "next_obs")


def check_dataset(dataset: Any) -> None:
    """Reject a value that is not a dataset in memory."""
    if not isinstance(dataset, (Mapping, TransitionDataset)):
        hint = "; a file goes in dataset_path" if isinstance(dataset, str) or hasattr(dataset, "__fspath__") else ""
        what = shown(dataset) if hint else type(dataset).__name__
        raise UserError(f"{WHERE} must be a mapping of arrays or a TransitionDataset, got {what}{hint}")


def packed(dataset: Any, observation: ObservationCodec) -> Any:
    """The dataset with the observations of a Dict or Tuple space, if given by key, as the library stores them."""
    if not observation.is_tree or not isinstance(dataset, Mapping):
        return dataset
    trees = [name for name in OBSERVATIONS if isinstance(dataset.get(name), (Mapping, tuple))]
    try:
        return {**dataset, **{name: observation.pack(dataset[name]) for name in trees}}
    except UserError as error:
        raise UserError(f"{WHERE}: {error}") from error


class MemoryReader:
    """The arrays of a mapping or a `TransitionDataset`: their shapes and dtypes (`layout`) and values (`read`)."""

    def __init__(self, dataset: Dataset, wanted: tuple[str, ...]) -> None:
        check_dataset(dataset)
        values = _fields(dataset) if isinstance(dataset, TransitionDataset) else dataset
        self.names = [str(name) for name in values]
        self._arrays = {name: _array(name, values) for name in wanted if name in values}
        self.layout = {name: (array.shape, array.dtype.newbyteorder("=")) for name, array in self._arrays.items()}

    def read(self, name: str, out: Array) -> None:
        """Fill `out` with a copy, which later changes of the caller's arrays do not affect."""
        out[...] = self._arrays[name]


def _fields(dataset: TransitionDataset) -> dict[str, Any]:
    names = ("obs", "actions", "rewards", "next_obs", "dones", "truncations")
    return {name: getattr(dataset, name) for name in names if getattr(dataset, name) is not None}


def _array(name: str, values: Mapping[str, Any]) -> Array:
    try:
        value = values[name]
        if isinstance(value, Mapping):
            raise UserError(f"{WHERE}: {name} by key needs a Dict environment, whose keys they are")
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    except UserError:
        raise
    except Exception as error:  # a mapping may read a file, which may be closed by now
        what = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{WHERE}: {name} must be an array of numbers, got {what}") from error
    if array.dtype.kind not in "bifu" or array.dtype.itemsize > 8:
        raise UserError(f"{WHERE}: {name} must be an array of numbers of at most 64 bits, got {array.dtype}")
    return array

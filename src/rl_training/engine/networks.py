"""Modules as functions of their parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Network:
    """A module whose parameters are an argument: what makes a loss a function."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._slots = [
            (owner._parameters, name, f"{prefix}.{name}" if prefix else name)
            for prefix, owner in module.named_modules()
            for name, parameter in owner._parameters.items()
            if parameter is not None  # e.g. the bias of a layer without one
        ]

    def __call__(self, params: dict[str, Tensor], *inputs: Any) -> Any:
        if torch.compiler.is_compiling():
            return functional_call(self.module, params, inputs)
        # functional_call in few lines: its checks cost more than a small network's forward pass.
        before = [parameters[name] for parameters, name, _ in self._slots]
        for parameters, name, full_name in self._slots:
            parameters[name] = params[full_name]
        try:
            return self.module(*inputs)
        finally:
            for (parameters, name, _), parameter in zip(self._slots, before, strict=True):
                parameters[name] = parameter


def has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Conv2d) for part in module.modules())

"""The numerics of this process: the instruction set of each library, and the reproducibility that follows."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.core.checks import UserError, did_you_mean
from rl_training.core.numerics import (
    MODES,
    NATIVE,
    PINNED,
    VARIABLE,
    has_avx2,
    has_avx512,
    is_amd,
    vector_instructions,
)

# Return values of mkl_cbwr_get (mkl_types.h). AMD has no AVX2 branch: its AVX2 mode is AUTO, one code path for all.
MKL_BRANCHES = {1: "off", 2: "AUTO", 3: "COMPATIBLE", 9: "AVX", 10: "AVX2", 12: "AVX512", 14: "AVX512_E1"}
CBWR_BRANCH = 1  # the argument of mkl_cbwr_get
MKL_MODES = ("AUTO", "COMPATIBLE", "AVX", "AVX2")  # in which MKL leaves half of the vectors of AVX-512 unused, or more
SAME_WIDTH = {"aten": "AVX2", "onednn": "AVX2", "numpy": "X86_V3", "openblas": "Haswell"}
UNKNOWN = "unknown"
PRODUCT_SOURCE = Path(__file__).with_name("product.cpp")


@functools.cache
def libraries() -> dict[str, str]:
    """The instruction set or version of each library, as the library reports it where it can."""
    aten = torch.backends.cpu.get_cpu_capability()
    # oneDNN does not report it. It reads its variable at its first convolution, and torch's kernels theirs at the first
    # operation: if torch computed before rl_training was imported, neither may have read it.
    onednn = os.environ.get("ONEDNN_MAX_CPU_ISA", "default") if aten == SAME_WIDTH["aten"] else "default"
    return {
        "mkl": _mkl(),
        "aten": aten,
        "onednn": onednn,
        "numpy": _numpy(),
        "openblas": _openblas(),
        "libm": "-".join(filter(None, platform.libc_ver())) or UNKNOWN,
    }


def numerics(device: str, compiled: bool = False) -> dict[str, str]:
    """The numeric mode and what each library uses: recorded in a run, compared when it is resumed.

    With compiled updates on a CPU, also what their code depends on: two processors may have one model name.
    """
    mode = os.environ.get(VARIABLE, PINNED)
    if mode not in MODES:
        raise UserError(f"{VARIABLE} must be one of {', '.join(MODES)}, got {mode!r}{did_you_mean(mode, MODES)}")
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    code = {}
    if compiled and device == "cpu":
        products = "own" if uses_own_products() else "torch"
        code = {"products": products, "instructions": " ".join(vector_instructions())}
    return {"mode": mode if has_avx2() else NATIVE, **libraries(), **gpu, **code}


def uses_own_products() -> bool:
    """Whether compiled updates on a CPU multiply matrices by `product.cpp`: where MKL is known to be slower.

    MKL never uses AVX-512 on AMD, and in its reproducible modes nowhere; its COMPATIBLE mode is slow everywhere.
    """
    mkl = libraries()["mkl"]
    narrow = mkl in MKL_MODES or (mkl == "off" and is_amd())
    slower = (has_avx512() and narrow) or (has_avx2() and mkl == "COMPATIBLE")
    return slower and torch_takes_products()


@functools.cache
def torch_takes_products() -> bool:
    """Whether this torch has every C function that `product.cpp` calls: they are not torch's stable interface."""
    header = Path(torch.__path__[0]) / "include/torch/csrc/inductor/aoti_torch/c/shim.h"
    called = set(re.findall(r"\baoti_torch_\w+", PRODUCT_SOURCE.read_text(encoding="utf-8")))
    try:
        return called <= set(re.findall(r"\baoti_torch_\w+", header.read_text(encoding="utf-8")))
    except OSError:
        return False


def seeds_are_exact(found: Mapping[str, str]) -> bool:
    """Whether a seed among many has the bits of the seed alone (eager, on a CPU).

    MKL without a mode chooses kernels by the number of matrices; other matrix libraries are not trusted.
    """
    return found["mkl"] not in ("off", "none", UNKNOWN)


def portable_to(found: Mapping[str, str]) -> str | None:
    """The processors on which an eager run of one thread has the same bits; None: this model only."""
    if any(found[name] != value for name, value in SAME_WIDTH.items()):
        return None
    families = {"COMPATIBLE": "x86-64 with AVX2", "AVX2": "Intel with AVX2"}
    if is_amd():  # on Intel, AUTO depends on the processor
        families["AUTO"] = "AMD with AVX2"
    return families.get(found["mkl"])


def numerics_warning(found: Mapping[str, str]) -> str | None:
    """A warning if a library was initialised before its mode could be set, so that guarantees are lost; else None."""
    if found["mode"] == NATIVE:
        return None
    late = [name for name, value in SAME_WIDTH.items() if found[name] != value]
    if not seeds_are_exact(found):
        late.insert(0, "mkl")
    if not late:
        return None
    seeds = "" if seeds_are_exact(found) else "a seed among many may differ from the seed alone in the last bits, and "
    return (
        f"numerics: {', '.join(late)} could not be set, because it was in use before rl_training was imported or its "
        f"variable was set: {seeds}the same run on another processor will differ; import rl_training first"
    )


def _mkl() -> str:
    if not torch.backends.mkl.is_available():
        return "none"
    try:
        library = ctypes.CDLL(str(Path(torch.__path__[0]) / "lib" / "libtorch_cpu.so"))
        branch = int(library.mkl_serv_cbwr_get(CBWR_BRANCH))
    except (OSError, AttributeError):
        return UNKNOWN
    return MKL_BRANCHES.get(branch, str(branch))


def _numpy() -> str:
    """The widest instruction set that numpy's loops may use."""
    core: Any = importlib.import_module("numpy._core._multiarray_umath")  # numpy has no public API for it

    features = [name for name in core.__cpu_dispatch__ if core.__cpu_features__.get(name)]
    if "X86_V3" not in core.__cpu_dispatch__:  # before numpy 2.4 the same set had other names
        features = ["X86_V3" if name in ("FMA3", "AVX2") else name for name in features]
    return features[-1] if features else "baseline"


def _openblas() -> str:
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("*openblas*")):
        names = ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename")
        library = ctypes.CDLL(str(path))
        for name in names:
            if hasattr(library, name):
                function = getattr(library, name)
                function.restype = ctypes.c_char_p
                return re.sub(r"[^A-Za-z0-9_]", "", function().decode()) or UNKNOWN
    return "none"

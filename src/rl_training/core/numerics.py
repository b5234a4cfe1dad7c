"""The CPU instructions that numerical libraries may use, set before they are loaded.

By default they use whatever the processor has (AVX-512 or AVX2, Intel's code or AMD's), and the last bits of a sum
depend on it: a seed trained among others would differ from the seed alone, and a resumed run from its first half.
`docs/numerics.md` lists every source of rounding and the guarantees of each mode.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from pathlib import Path

VARIABLE = "RL_TRAINING_NUMERICS"
PINNED, PORTABLE, NATIVE = "pinned", "portable", "native"
MODES = (PINNED, PORTABLE, NATIVE)
CPUINFO = Path("/proc/cpuinfo")

_WIDTH = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels, and the vector width that Inductor compiles for
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions
    "OPENBLAS_CORETYPE": "Haswell",  # numpy's matrix products
}
_MKL = {PINNED: "AVX2", PORTABLE: "COMPATIBLE"}  # torch's matrix products
LIBRARY_VARIABLES = (*_WIDTH, "MKL_CBWR", "NPY_DISABLE_CPU_FEATURES")  # everything that `pin_libraries` may set


def pin_libraries() -> None:
    """Set the libraries' environment variables that the user has not set; worker processes inherit them."""
    mode = os.environ.get(VARIABLE, PINNED)
    if mode == NATIVE or not has_avx2():
        return
    variables = {**_WIDTH, "MKL_CBWR": _MKL.get(mode, _MKL[PINNED]), "NPY_DISABLE_CPU_FEATURES": _numpy_features()}
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def has_avx2(cpuinfo: Path = CPUINFO) -> bool:
    """Whether this is an x86-64 processor with AVX2; on any other, a pinned library would crash."""
    return platform.machine() in ("x86_64", "AMD64") and {"avx2", "fma"} <= set(_cpuinfo("flags", cpuinfo))


def has_avx512(cpuinfo: Path = CPUINFO) -> bool:
    """Whether this is an x86-64 processor with AVX2 and AVX-512."""
    return has_avx2(cpuinfo) and "avx512f" in _cpuinfo("flags", cpuinfo)


def is_amd(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor is made by AMD."""
    return "AuthenticAMD" in _cpuinfo("vendor_id", cpuinfo)


def processor_name(cpuinfo: Path = CPUINFO) -> str:
    """The processor's model, or its architecture where the system does not name it."""
    part = [*_cpuinfo("CPU implementer", cpuinfo)[-1:], *_cpuinfo("CPU part", cpuinfo)[-1:]]  # ARM has no names
    name = _cpuinfo("model name", cpuinfo)[3:] or [platform.processor() or platform.machine(), *part]
    return " ".join(name)


def processor_facts(cpuinfo: Path = CPUINFO) -> list[str]:
    """The architecture, model and instruction sets of the processor, for which code may be compiled."""
    return [platform.machine(), processor_name(cpuinfo), *_instructions(cpuinfo)]


def vector_instructions(cpuinfo: Path = CPUINFO) -> list[str]:
    """The instruction sets of the processor that decide how compiled sums of floating-point numbers round."""
    prefixes = ("avx", "amx", "fma", "f16c", "asimd", "sve", "sme")
    return sorted(flag for flag in _instructions(cpuinfo) if flag.startswith(prefixes))


def _instructions(cpuinfo: Path) -> list[str]:
    """The instruction sets of the processor: `flags` of x86-64, `Features` of ARM."""
    return (_cpuinfo("flags", cpuinfo) or _cpuinfo("Features", cpuinfo))[2:]


def _cpuinfo(name: str, cpuinfo: Path) -> list[str]:
    """One entry of the first core in /proc/cpuinfo: reading the whole file is slow on a machine with many cores."""
    try:
        with cpuinfo.open() as lines:
            return next((line.split() for line in lines if line.startswith(name)), [])
    except OSError:
        return []


def _numpy_features() -> str:
    """numpy's names of its AVX-512 loops, which changed with 2.4; numpy warns of unknown names."""
    spec = importlib.util.find_spec("numpy")
    text = Path(spec.origin).with_name("version.py").read_text() if spec is not None and spec.origin else ""
    found = re.search(r'version = "(\d+)\.(\d+)', text)
    if found is not None and (int(found[1]), int(found[2])) < (2, 4):
        return "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
    return "X86_V4 AVX512_ICL AVX512_SPR"

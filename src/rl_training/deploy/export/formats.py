"""The formats of exported policies: how their files are written, and run for a check."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.core.checks import UserError, did_you_mean, one_line
from rl_training.deploy.export import numpy_runner
from rl_training.deploy.export.numpy_program import to_npz
from rl_training.deploy.export.policy import Policy
from rl_training.deploy.export.tracing import check_precision, layer_of, quiet, traced

Array = NDArray[Any]
Run = Callable[[Mapping[str, Array]], list[Array]]  # inputs by name to the outputs in their order
BATCH = "batch"  # the number of rows
METADATA = "rl_training"  # the key of an ONNX file's metadata with the digest of its agent


@dataclass(frozen=True)
class Format:
    """A file format of exported policies."""

    name: str
    suffix: str
    pack: Callable[[Policy], bytes]
    load: Callable[[bytes, Policy], Run]
    runs_code: bool = False  # whether loading a file of it can run code


def to_onnx(policy: Policy) -> bytes:
    """The bytes of an ONNX file, whose batch has any number of rows."""
    _import_onnx()
    graph = traced(policy)
    check_precision(graph, "ONNX")
    names = {"input_names": [one.name for one in policy.inputs], "output_names": policy.output_names}
    try:
        with quiet():
            program: Any = torch.onnx.export(graph, dynamo=True, verbose=False, **names)  # type: ignore[arg-type]
    except Exception as error:  # of any kind: the network may be the user's
        raise UserError(_unsupported(graph, error)) from error
    model = program.model_proto
    _name_batch(model.graph)
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA, policy.agent[0].digest(policy.seed_index)
    data: bytes = model.SerializeToString()
    return data


def _name_batch(graph: Any) -> None:
    """Call the number of rows `batch`, as the contract does; the exporter calls it by a number."""
    symbol = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == symbol:
                dimension.dim_param = BATCH


def _unsupported(graph: Any, error: BaseException) -> str:
    """The layer whose operation ONNX does not have."""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    text = " ".join(str(one) for one in causes)
    missing = re.findall(r"\b(?:aten|prims)\.(\w+)", text)
    # aten.special_erfcx may have become prims.erfcx, and aten.special_i0e prims.bessel_i0e.
    ends = {name.rpartition("_")[2] for name in missing} - {""}
    for node in graph.graph.nodes:
        operator = str(node.target).split(".")[1] if str(node.target).startswith("aten.") else ""
        if any(name in operator for name in missing) or operator.rpartition("_")[2] in ends:
            return f"{layer_of(node)} cannot be exported to ONNX, which has no operation for {operator}"
    return f"the policy cannot be exported to ONNX: {one_line(causes[-1])}"


def _import_onnx() -> Any:
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(f"ONNX needs pip install 'rl-training[onnx]' ({one_line(error)})") from error
    return onnxruntime


def onnx_session(data: bytes) -> Any:
    """A session of onnxruntime on one thread."""
    runtime = _import_onnx()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has its own exceptions for damaged files
        raise UserError(f"not an ONNX file that onnxruntime can load: {one_line(error)}") from error


def load_onnx(data: bytes, policy: Policy) -> Run:
    """The policy of an ONNX file."""
    return partial(onnx_session(data).run, policy.output_names)


def to_pt2(policy: Policy) -> bytes:
    """The bytes of a torch.export file."""
    file = io.BytesIO()
    with quiet():
        torch.export.save(traced(policy), file)
    return file.getvalue()


def load_pt2(data: bytes, policy: Policy) -> Run:
    """The module of a torch.export file that this process has just written; others are never loaded."""
    with quiet():
        module = torch.export.load(io.BytesIO(data)).module()

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        with torch.no_grad():
            found = module(*(torch.from_numpy(inputs[one.name]) for one in policy.inputs))
        return [one.numpy() for one in found]

    return run


def load_npz(data: bytes, policy: Policy) -> Run:
    """The policy of an .npz file, by the runner of this package and never by one that lies beside the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(one.file_size for one in archive.infolist()) > len(data):  # a small file may hold a large one
                raise ValueError("its arrays are compressed")
        runner = numpy_runner.NumpyPolicy(io.BytesIO(data))
    except Exception as error:  # of a damaged file: numpy, zipfile and its codecs have their own
        why = "it holds a pickle" if "pickle" in str(error) else one_line(error)
        raise UserError(f"not an exported policy: {why}") from error

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            found = runner(inputs)
        return [np.asarray(found[name]) for name in policy.output_names]

    return run


FORMATS = {
    one.name: one
    for one in (
        Format("onnx", ".onnx", to_onnx, load_onnx),
        Format("torch", ".pt2", to_pt2, load_pt2, runs_code=True),
        Format("numpy", ".npz", to_npz, load_npz),
    )
}


def format_of(path: Path, name: str | None = None) -> Format:
    """The format of this name, or by default that of the file's suffix."""
    if name is not None and name not in FORMATS:
        raise UserError(f"to must be one of {', '.join(FORMATS)}, got {name!r}{did_you_mean(name, FORMATS)}")
    found = [one for one in FORMATS.values() if one.suffix == path.suffix]
    if name is None and not found:
        raise UserError(f"{path}: must end in {', '.join(one.suffix for one in FORMATS.values())}")
    chosen = FORMATS[name] if name is not None else found[0]
    if path.suffix != chosen.suffix:
        raise UserError(f"{path}: must end in {chosen.suffix} for {chosen.name}")
    return chosen

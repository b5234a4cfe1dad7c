"""Matrix products of updates that are compiled for a CPU: `product.cpp` in place of torch's own.

Torch calls MKL, which uses half of the width of an AMD processor with AVX-512, and of any in the numeric modes that
give the same bits elsewhere. Compiled updates promise their bits for one model of processor, so they may use all of it.
`rounding.uses_own_products` decides, `make bench-kernels` compares both.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files

from rl_training.core.numerics import processor_facts
from rl_training.engine.rounding import PRODUCT_SOURCE, uses_own_products

NAME = "rl_training::product"
ATEN = torch.ops.aten
REPLACED = (ATEN.mm.default, ATEN.bmm.default, ATEN.addmm.default, ATEN.baddbmm.default)
_lock = threading.Lock()


class OwnProducts(CustomGraphPass):
    """A pass over Inductor's graph that replaces torch's products of float32 matrices on a CPU."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in list(graph.nodes):
            found = node.meta.get("val")
            if node.target not in REPLACED or found.dtype != torch.float32 or found.device.type != "cpu":
                continue
            *added, left, right = node.args
            if added and node.kwargs:  # factors of the sum
                continue
            with graph.inserting_before(node):
                result = graph.call_function(operation(), (left, right, self.threads))
                result.meta["val"] = _shape(left.meta["val"], right.meta["val"], self.threads)
                if added:
                    product, result = result, graph.call_function(ATEN.add.Tensor, (result, added[0]))
                    result.meta["val"] = product.meta["val"] + added[0].meta["val"]
            node.replace_all_uses_with(result)
            graph.erase_node(node)

    def uuid(self) -> Any:
        """Part of the key under which Inductor stores the programs."""
        return get_hash_for_files((__file__, str(PRODUCT_SOURCE)), str(self.threads))


def own_products() -> OwnProducts | None:
    """The pass for this process; None: products stay torch's."""
    if not uses_own_products():
        return None
    operation()  # stored programs call it, and no pass runs for those
    return OwnProducts(torch.get_num_threads())


def operation() -> Any:
    """The operation in torch's registry, compiled at the first call, into the folder of compiled programs."""
    with _lock:
        return _registered()


@functools.cache
def _registered() -> Any:
    from torch._inductor.codecache import CppCodeCache

    # The facts give each processor a library of its own where several machines share a folder.
    library = CppCodeCache.load(f"// {' '.join(processor_facts())}\n{PRODUCT_SOURCE.read_text(encoding='utf-8')}")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    # Each step by itself: an earlier call may have been interrupted after any of them.
    if not hasattr(torch.ops.rl_training, "product"):
        # It takes tensors of any strides: nothing has to be copied for it.
        tags = (torch.Tag.flexible_layout, torch.Tag.pt2_compliant_tag)
        torch.library.define(NAME, "(Tensor a, Tensor b, int threads) -> Tensor", tags=tags)
    if not has_kernel(NAME, "Meta"):
        torch.library.register_fake(NAME, _shape)
    if not has_kernel(NAME, "CPU") and library.register_product():
        raise RuntimeError(f"torch {torch.__version__} does not take {NAME}")
    return torch.ops.rl_training.product.default


def _shape(a: Tensor, b: Tensor, threads: int) -> Tensor:
    return a.new_empty(*a.shape[:-1], b.shape[-1])

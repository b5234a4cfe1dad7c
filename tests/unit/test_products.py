"""The compiled matrix product: its values, and that its bits depend on the two factors alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from compiler import needs_compiler
from torch import Tensor
from torch.nn import functional as F

from rl_training.core.numerics import has_avx2
from rl_training.engine import products, rounding
from rl_training.engine.compilation import compile_once
from rl_training.engine.compile_cache import compile_cache, has_space

pytestmark = [pytest.mark.skipif(not has_avx2(), reason="the product needs AVX2"), needs_compiler]
SIZES = [
    (1, 1, 1, 1),
    (1, 7, 3, 2),
    (2, 256, 23, 256),
    (3, 65, 256, 6),
    (1, 9, 257, 16),  # one row of the sums behind a whole panel
    (2, 300, 600, 33),  # more than one chunk of rows and of depth, and a column left over
    (1, 17, 512, 49),
]
Product = Callable[[Tensor, Tensor, int], Tensor]


@pytest.fixture(scope="module")
def product() -> Product:
    with compile_cache():
        return products.operation()  # type: ignore[no-any-return]


def factors(batch: int, m: int, k: int, n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(m * n + k)
    return torch.randn(batch, m, k, generator=generator), torch.randn(batch, k, n, generator=generator)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(product: Product, sizes: tuple[int, int, int, int]) -> None:
    a, b = factors(*sizes)
    torch.testing.assert_close(product(a, b, 2), (a.double() @ b.double()).float(), rtol=1e-5, atol=2e-6 * sizes[2])


def test_hand_worked_product(product: Product) -> None:
    a, b = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[1.0, 10.0], [100.0, 1000.0]])
    assert product(a, b, 1).tolist() == [[201, 2010], [403, 4030], [605, 6050]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_threads_and_strides_do_not_change_a_bit(product: Product, sizes: tuple[int, int, int, int]) -> None:
    a, b = factors(*sizes)
    expected = product(a, b, 1)
    for threads in (2, 3, 16):
        assert torch.equal(product(a, b, threads), expected)
    by_columns = [one.transpose(1, 2).contiguous().transpose(1, 2) for one in (a, b)]
    with_gaps = [torch.stack((one, one), -1)[..., 0] for one in (a, b)]
    for other in (by_columns, with_gaps, [by_columns[0], b], [a, with_gaps[1]]):
        assert torch.equal(product(other[0], other[1], 2), expected)


def test_a_row_does_not_depend_on_what_is_computed_with_it(product: Product) -> None:
    """A seed among many, a row of a larger batch and a column of a wider layer have the bits they have alone."""
    a, b = factors(3, 300, 600, 33)
    whole = product(a, b, 2)
    assert torch.equal(product(a[1], b[1], 1), whole[1])
    assert torch.equal(product(a[:, 37:38], b, 1), whole[:, 37:38])
    assert torch.equal(product(a, b[..., 32:], 1), whole[..., 32:])
    assert torch.equal(product(a[:1].expand(3, -1, -1), b, 2)[2], product(a[0], b[2], 1))


def test_the_order_of_sums_is_fixed(product: Product) -> None:
    """A sum is that of chains of 256 terms, one after the other: 1 + 2**-24 rounds to 1 each time."""
    small = torch.full((1, 1, 302), 2.0**-12)
    small[0, 0, 0] = 1.0
    other = small.transpose(1, 2).contiguous()
    assert product(small, other, 1).item() == 1 + 46 * 2.0**-24  # those of the second chain
    # 256 in the first chain; in the second 45 and then 1, which rounds to an even last bit.
    assert product(small.flip(2), other.flip(1), 1).item() == 1 + 300 * 2.0**-24


@pytest.mark.parametrize("sizes", [(1, 0, 3, 2), (1, 2, 0, 3), (2, 3, 4, 0), (0, 2, 2, 2)], ids=str)
def test_empty_factors(product: Product, sizes: tuple[int, int, int, int]) -> None:
    a, b = factors(*sizes)
    assert torch.equal(product(a, b, 2), a @ b)


def test_long_sums_stay_accurate(product: Product) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(shape, generator=generator) for shape in ((1, 8, 65536), (1, 65536, 32)))
    exact = a.double() @ b.double()
    assert ((product(a, b, 2) - exact).abs() / exact).max() < 3e-6


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), "shapes do not match"),
        (torch.zeros(2, 3).double(), torch.zeros(3, 2).double(), "must be float32"),
        (torch.zeros(2, 3), torch.zeros(3, 2).bfloat16(), "must be float32"),
        (torch.zeros(3), torch.zeros(3), "two or three axes"),
        (torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 3, 2), "two or three axes"),
        (torch.zeros(1, 2, 3), torch.zeros(3, 2), "two or three axes"),
    ],
    ids=["shapes", "double", "bfloat16", "one axis", "four axes", "two and three axes"],
)
def test_other_factors_are_rejected(product: Product, left: Tensor, right: Tensor, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        product(left, right, 1)


def test_narrow_vectors_give_the_same_bits(product: Product, tmp_path: Path) -> None:
    """The code for processors without AVX-512, which this one may have."""
    if has_space(tmp_path):
        pytest.skip("torch does not quote spaces for the compiler")
    compiler = tmp_path / "narrow"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which(os.environ.get("CXX") or "g++")} "$@" -mno-avx512f\n')
    compiler.chmod(0o755)
    program = (
        "import sys, rl_training, torch, test_products as here\n"
        "from rl_training.engine import products\n"
        "results = [products.operation()(*here.factors(*sizes), 2) for sizes in here.SIZES]\n"
        "torch.save(results, sys.argv[1])\n"
    )
    env = {**os.environ, "CXX": str(compiler), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "results.pt")], check=True, env=env)
    for sizes, found in zip(SIZES, torch.load(tmp_path / "results.pt", weights_only=True), strict=True):
        assert torch.equal(found, product(*factors(*sizes), 1)), sizes


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """A function that compiles another and calls it: the names of the operations after the pass."""

    def compiled(function: Callable[..., Tensor], *arguments: Tensor) -> list[str]:
        seen: list[str] = []

        class Recorded(products.OwnProducts):
            def __call__(self, graph: torch.fx.Graph) -> None:
                super().__call__(graph)
                seen.extend(str(node.target) for node in graph.nodes if node.op == "call_function")

            def uuid(self) -> None:
                """No stored program: the pass must run."""
                return None

        monkeypatch.setattr(products, "own_products", lambda: Recorded(1))
        found = compile_once(function)(*arguments)
        torch.testing.assert_close(found, function(*arguments), rtol=1e-4, atol=1e-3)
        return seen

    return compiled


def test_a_compiled_update_has_no_other_product(operations: Callable[..., list[str]]) -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(2, 32, 5, generator=generator), torch.randn(2, 5, 8, generator=generator)

    def update(x: Tensor, w: Tensor) -> Tensor:
        def loss(w: Tensor) -> Tensor:
            hidden = F.linear(torch.bmm(x, w).relu()[0], w[0], w[0, :, 0])
            return torch.baddbmm(hidden, x, w @ w.transpose(1, 2)).square().sum()

        return torch.func.grad(loss)(w)

    seen = operations(update, x, w)
    assert "rl_training.product.default" in seen and not [name for name in seen if "mm" in name]


def test_other_kinds_of_products_stay_those_of_torch(operations: Callable[..., list[str]]) -> None:
    """Sums with factors, and numbers of another precision."""
    x, w = torch.ones(32, 24), torch.ones(24, 40)

    def products_of_torch(x: Tensor, w: Tensor) -> Tensor:
        scaled = torch.addmm(torch.ones(40), x, w, beta=0.5, alpha=2.0)
        return scaled + (x.double() @ w.double()).float() + (x.bfloat16() @ w.bfloat16()).float()

    seen = operations(products_of_torch, x, w)
    assert "rl_training.product.default" not in seen and len([name for name in seen if "mm" in name]) == 3


@pytest.mark.parametrize(
    ("avx2", "avx512", "amd", "mkl", "expected"),
    [(True, True, False, "AVX2", True), (True, True, True, "AUTO", True), (True, False, False, "AVX2", False),
     (True, False, True, "COMPATIBLE", True), (True, True, True, "off", True), (True, True, False, "off", False),
     (True, True, False, "AVX512", False), (True, True, False, "none", False),
     (False, False, False, "COMPATIBLE", False)],
)  # fmt: skip
def test_products_are_replaced_where_mkl_is_slower(
    monkeypatch: pytest.MonkeyPatch, avx2: bool, avx512: bool, amd: bool, mkl: str, expected: bool
) -> None:
    for name, value in {"has_avx2": avx2, "has_avx512": avx512, "is_amd": amd, "libraries": {"mkl": mkl}}.items():
        monkeypatch.setattr(rounding, name, lambda value=value: value)
    with compile_cache():
        assert (products.own_products() is not None) == rounding.uses_own_products() == expected


def test_another_torch_keeps_its_own_products(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The C functions are no stable interface: one that is missing must not end a compiled run."""
    for name, value in {"has_avx2": True, "has_avx512": True, "is_amd": True, "libraries": {"mkl": "AVX2"}}.items():
        monkeypatch.setattr(rounding, name, lambda value=value: value)
    assert rounding.uses_own_products()
    text = rounding.PRODUCT_SOURCE.read_text().replace("aoti_torch_empty_strided(", "aoti_torch_gone_tomorrow(")
    monkeypatch.setattr(rounding, "PRODUCT_SOURCE", tmp_path / "product.cpp")
    rounding.PRODUCT_SOURCE.write_text(text)
    rounding.torch_takes_products.cache_clear()
    try:
        assert not rounding.uses_own_products() and products.own_products() is None
    finally:
        rounding.torch_takes_products.cache_clear()


def test_the_operation_can_be_requested_again(product: Product) -> None:
    """As after a failure, which the cache does not keep."""
    products._registered.cache_clear()
    with compile_cache():
        assert torch.equal(products.operation()(*factors(1, 7, 3, 2), 1), product(*factors(1, 7, 3, 2), 1))


def test_an_interrupted_registration_is_completed() -> None:
    """Ctrl-C in a notebook, between the operation's schema and its kernel."""
    program = (
        "import rl_training, torch\n"
        "from unittest.mock import patch\n"
        "from rl_training.engine import products\n"
        "from rl_training.engine.compile_cache import compile_cache\n"
        "with compile_cache():\n"
        "    with patch.object(torch.library, 'register_fake', side_effect=KeyboardInterrupt):\n"
        "        try: products.operation()\n"
        "        except KeyboardInterrupt: print('interrupted')\n"
        "    print(products.operation()(torch.ones(2, 3), torch.ones(3, 1), 1).tolist())\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "interrupted\n[[3.0], [3.0]]\n", found.stderr


def test_rejected_factors_are_freed(product: Product) -> None:
    """16 MiB a call: sixteen calls would hold 256."""
    before = _resident_mib()
    for _ in range(16):
        with pytest.raises(RuntimeError, match="shapes do not match"):
            product(torch.ones(1, 1 << 22, 1), torch.ones(1, 2, 1), 1)
    assert _resident_mib() - before < 100


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

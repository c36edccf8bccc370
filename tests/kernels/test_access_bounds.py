"""Accesses at sums of indices: a kernel that would access memory outside a tensor is refused, at once or when its dims
are bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyruntime.errors import ShapeError
from pyruntime.frontend.tracer import Tracer
from pyruntime.ir import shape as sh
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import Expr, const, dim, guard, select
from pyruntime.ir.kernel import Builder, Tensor
from pyruntime.ir.shape import AnyDim

Build = Callable[[Tracer, Tensor, AnyDim], None]
ZERO = const(0.0, F32)


def moved(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((m,), lambda i: x[i + 1])


def backwards(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((m,), lambda i: x[dim(m) - 1 - i])


def every_second(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((m,), lambda i: x[i * 2])


def every_mth(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((2,), lambda i: x[i * dim(m)])


def one_element(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((m,), lambda i: x[2] + x[i])


def windows(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.reduce_compute("sum", (m,), (3,), lambda i, r: x[i + r])


def guarded(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((m,), lambda i: guard(i + 1 < dim(x.shape[0]), x[i + 1], ZERO))


def guarded_elsewhere(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((3, m), lambda i, j: guard(i < 1, x[j + 1], ZERO))


def selected(t: Tracer, x: Tensor, m: AnyDim) -> None:
    t.compute((m,), lambda i: select(i + 1 < dim(x.shape[0]), x[i + 1], ZERO))


def in_loops(
    write: Callable[[Builder, Expr, Tensor, Tensor, AnyDim], None],
) -> Callable[[Tracer, Tensor, AnyDim], None]:
    def build(t: Tracer, x: Tensor, m: AnyDim) -> None:
        def body(k: Builder, out: Tensor) -> None:
            with k.parallel(dim(m)) as i:
                write(k, i, x, out)

        t.loops("case", [x], [((4,), F32)], body)

    return build


def named(k: Builder, i: Expr, x: Tensor, out: Tensor) -> None:
    k.store(out, (0,), x[k.let(i + 1)])


def inside_when(k: Builder, i: Expr, x: Tensor, out: Tensor) -> None:
    with k.when(i < 1):
        k.store(out, (0,), x[i])


def stored(k: Builder, i: Expr, x: Tensor, out: Tensor) -> None:
    k.store(out, (i + 1,), x[0])


@pytest.mark.parametrize("named_dims", [False, True])
@pytest.mark.parametrize(
    ("build", "kept", "refused"),  # sizes of x, and m
    [
        (moved, [(4, 3), (9, 3), (0, 0)], [(3, 3), (0, 1)]),
        (backwards, [(3, 3), (9, 3), (0, 0)], [(2, 3)]),
        (every_second, [(5, 3), (1, 1), (0, 0)], [(4, 3)]),
        (every_mth, [(4, 3), (1, 0)], [(3, 3), (0, 0)]),
        (one_element, [(3, 3), (3, 1), (0, 0)], [(2, 2), (2, 1)]),
        (windows, [(5, 3), (3, 1), (0, 0)], [(4, 3), (2, 1)]),
        (guarded, [(5, 3), (3, 3), (0, 1)], []),
        (guarded_elsewhere, [(4, 3), (0, 0)], [(3, 3)]),
        (selected, [(4, 3), (0, 0)], [(3, 3)]),
        (in_loops(named), [(4, 3), (0, 0)], [(3, 3)]),
        (in_loops(stored), [(1, 3), (0, 0)], [(1, 4), (0, 3)]),
        (in_loops(inside_when), [(1, 3), (0, 0)], []),
    ],
)
def test_accesses(
    build: Build, kept: list[tuple[int, int]], refused: list[tuple[int, int]],
    named_dims: bool,
) -> None:  # fmt: skip
    assert [leaves(build, *sizes, named_dims) for sizes in kept + refused] == [False] * len(kept) + [True] * len(
        refused
    )


def leaves(build: Build, size: int, m: int, named_dims: bool) -> bool:
    t = Tracer(lambda w: [])
    dims: list[AnyDim] = [sh.symbol("n"), sh.symbol("m")] if named_dims else [size, m]
    try:
        build(t, t.leaf("feed", dims[:1], F32, name="x"), dims[1])
    except ShapeError as error:
        assert "too small" in str(error)
        return True
    bound = {s: v for d, v in zip(dims, (size, m), strict=True) for s in sh.symbols(d)}
    return not all(sh.evaluate(condition, bound) for condition, *_ in t.guards)

"""Schedules for the GPU: a table of them. Each schedule has its own file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeGuard

from pyruntime.codegen.loop_ir import LoopCode, Lowered
from pyruntime.codegen.schedule import lower
from pyruntime.ir.kernel import Loops, Map, Reduce

from ..adapter import Adapter
from ..printer.loops import Shader, print_kernel, print_workgroup_tile
from . import workgroup_procedure, workgroup_rows
from .register_tile import tiled
from .vec4 import vectorized
from .workgroup_reduction import cooperates, print_reduction
from .workgroup_tile import workgroup_tiled


class Scheduled(NamedTuple):
    """A kernel's loop form, the name of its schedule, and the function that prints it."""

    lowered: Lowered
    name: str
    printed: Callable[[LoopCode], Shader]


Meaning = Map | Reduce | Loops  # the definition of a kernel or call
Schedule = Callable[[Meaning, Adapter], Scheduled | None]


def _rows(kernel: Meaning, adapter: Adapter) -> Scheduled | None:
    """A procedure of rows, with a workgroup for each row."""
    if not (isinstance(kernel, Loops) and kernel.unit_is_row and workgroup_rows.cooperates(kernel, adapter)):
        return None
    return Scheduled(lower(kernel, "gpu"), "rows", partial(workgroup_rows.print_rows, adapter=adapter))


def _procedure(kernel: Meaning, adapter: Adapter) -> Scheduled | None:
    """A procedure with a workgroup for each work unit, whose invocations share independent loops."""
    if not isinstance(kernel, Loops):
        return None
    shares = workgroup_procedure.cooperates(kernel)
    printed = partial(workgroup_procedure.print_procedure if shares else print_kernel, f16=adapter.f16)
    return Scheduled(lower(kernel, "gpu"), f"loops {shares}", printed)


def _workgroup_tile(kernel: Meaning, adapter: Adapter) -> Scheduled | None:
    """A sum of products with panels in workgroup memory."""
    panels = workgroup_tiled(kernel, adapter) if _sums(kernel) else None
    if panels is None:
        return None
    return Scheduled(panels[0], "workgroup tile", partial(print_workgroup_tile, shared=panels[1], f16=adapter.f16))


def _register_tile(kernel: Meaning, adapter: Adapter) -> Scheduled | None:
    """A sum of products with a tile in the registers of each invocation."""
    tiles = tiled(kernel, adapter) if _sums(kernel) else None
    if tiles is None:
        return None
    return Scheduled(tiles[0], "tiled", partial(print_kernel, f16=adapter.f16, arrays=tiles[1]))


def _sums(kernel: Meaning) -> TypeGuard[Reduce]:
    return isinstance(kernel, Reduce) and 0 not in (*kernel.out.shape, *kernel.extents)


def _workgroup_reduction(kernel: Meaning, adapter: Adapter) -> Scheduled | None:
    """A reduction to few elements, with a workgroup for each element."""
    return shared(kernel, adapter) if isinstance(kernel, Reduce) and cooperates(kernel, adapter) else None


def shared(kernel: Meaning, adapter: Adapter) -> Scheduled:
    """A reduction with a workgroup for each element."""
    alone = _elementwise(kernel, adapter)
    return Scheduled(alone.lowered, "shared", lambda code: print_reduction(code, adapter) or alone.printed(code))


def _elementwise(kernel: Meaning, adapter: Adapter) -> Scheduled:
    """An invocation for each element, or for four contiguous elements."""
    assert isinstance(kernel, (Map, Reduce))
    vec4 = vectorized(kernel, adapter)
    printed = partial(print_kernel, linear=vec4 is None, f16=adapter.f16)
    return Scheduled(vec4 or lower(kernel, "gpu"), f"vec4 {vec4 is not None}", printed)


SCHEDULES: tuple[Schedule, ...] = (
    _rows,
    _procedure,
    _workgroup_tile,
    _register_tile,
    _workgroup_reduction,
    _elementwise,
)


def scheduled(kernel: Meaning, adapter: Adapter) -> Scheduled:
    """Schedule a kernel by the first schedule of the table that applies. The last one always applies."""
    return next(found for schedule in SCHEDULES if (found := schedule(kernel, adapter)) is not None)

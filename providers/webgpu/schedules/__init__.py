"""Schedules for the GPU: a table of them. Each schedule has its own file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pyruntime.codegen.addressing import local_memory
from pyruntime.codegen.loop_ir import LoopCode, Lowered
from pyruntime.codegen.schedule import lower
from pyruntime.ir import shape as sh
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce, Tensor
from pyruntime.ir.shape import AnyDim

from ..adapter import Adapter
from ..printer.loops import Shader, print_kernel, print_workgroup_tile
from . import attention_blocks, workgroup_procedure, workgroup_rows
from .attention import Joint
from .byte_products import FEW, byte_product
from .few_rows import has_few_rows
from .local_states import arrays_of
from .register_tile import tiled
from .vec4 import vectorized
from .workgroup_reduction import cooperates, print_reduction
from .workgroup_tile import workgroup_tiled

Meaning = Map | Reduce | Loops  # the definition of a kernel or call


class Scheduled(NamedTuple):
    """A shader of a kernel.

    kernel: what it computes; name: of its schedule; lowered: its loop form; printed: the function that prints it
    scratch: tensors that it makes for later shaders of the kernel
    """

    kernel: Kernel
    name: str
    lowered: Lowered
    printed: Callable[[LoopCode], Shader]
    scratch: tuple[Tensor, ...] = ()

    def in_runs(self, condition: AnyDim, holds: bool) -> Scheduled:
        """The shader, which only runs execute in which the condition holds, or does not hold."""
        work = self.lowered.work
        work = sh.select(condition, work, 0) if holds else sh.select(condition, 0, work)
        return self._replace(lowered=replace(self.lowered, work=work))


class Task(NamedTuple):
    """A kernel to schedule. adapter: with the schedules that a measurement chose for it; joint: the attention that it
    is a part of, if any"""

    kernel: Kernel
    adapter: Adapter
    joint: Joint | None = None

    @property
    def meaning(self) -> Meaning:
        meaning = self.kernel.definition() if isinstance(self.kernel, Call) else self.kernel
        assert isinstance(meaning, Meaning)
        return meaning

    @property
    def sum(self) -> Reduce | None:
        """The kernel, if it is a reduction with elements."""
        kernel = self.meaning
        return kernel if isinstance(kernel, Reduce) and 0 not in (*kernel.out.shape, *kernel.extents) else None


Rest = Callable[[], list[Scheduled]]  # the shaders by the next schedule of the table that applies
Schedule = Callable[[Task, Rest], list[Scheduled] | None]  # shaders to run in order; None if it does not apply


def _attention(task: Task, rest: Rest) -> list[Scheduled] | None:
    """Attention as one kernel, or two: parts of the keys, and what joins them. Its last kernel has the shaders."""
    joint, adapter = task.joint, task.adapter
    if joint is None:
        return None

    def together() -> list[Scheduled]:
        last = joint.chain.last
        if task.kernel is not last:
            return []
        parts = attention_blocks.parts_of(joint)
        lowered, arrays = attention_blocks.blocks(joint, adapter, parts)
        printed = partial(print_workgroup_tile, shared=arrays, f16=adapter.f16)
        if parts is None:
            return [Scheduled(last, "attention", lowered, printed)]
        joined = Scheduled(
            last, "", attention_blocks.joining(joint.chain, parts), partial(print_kernel, f16=adapter.f16)
        )
        return [Scheduled(last, "attention", lowered, printed, (parts,)), joined]

    return _either(joint.runs, together, rest)


def _byte_product(task: Task, rest: Rest) -> list[Scheduled] | None:
    """Products of more than a few rows, which two kernels round to bytes."""
    product = byte_product(task.meaning, task.adapter)
    if product is None:
        return None

    def rounded() -> list[Scheduled]:
        first = [
            s._replace(scratch=k.outputs)
            for k in (product.scales, product.words)
            for s in scheduled(Task(k, task.adapter))
        ]
        printed = partial(print_kernel, f16=task.adapter.f16, arrays=product.arrays)
        return [*first, Scheduled(task.kernel, "byte product", product.lowered, printed)]

    return _either(sh.compare("le", product.rows, FEW), rest, rounded)


def _few_rows(task: Task, rest: Rest) -> list[Scheduled] | None:
    """Products of few rows, with a workgroup for each element."""
    few = has_few_rows(task.meaning, task.adapter)
    return None if few == 0 else _either(few, lambda: [_shared(task)], rest)


def _rows(task: Task, _: Rest) -> list[Scheduled] | None:
    """A procedure of rows, with a workgroup for each row."""
    kernel = task.meaning
    if not (isinstance(kernel, Loops) and kernel.unit_is_row and workgroup_rows.cooperates(kernel, task.adapter)):
        return None
    printed = partial(workgroup_rows.print_rows, adapter=task.adapter)
    return [Scheduled(task.kernel, "rows", lower(kernel, "gpu"), printed, tuple(kernel.scratch))]


def _procedure(task: Task, _: Rest) -> list[Scheduled] | None:
    """A procedure with a workgroup for each work unit, whose invocations share independent loops."""
    kernel = task.meaning
    if not isinstance(kernel, Loops):
        return None
    shares = workgroup_procedure.cooperates(kernel)
    printer = workgroup_procedure.print_procedure if shares else print_kernel
    printed = partial(printer, f16=task.adapter.f16, arrays=arrays_of(kernel))
    local = local_memory(kernel)
    scratch = tuple([t for t in kernel.scratch if t not in local])
    return [Scheduled(task.kernel, f"loops {shares}", lower(kernel, "gpu"), printed, scratch)]


def _workgroup_tile(task: Task, _: Rest) -> list[Scheduled] | None:
    """A sum of products with panels in workgroup memory."""
    panels = workgroup_tiled(task.sum, task.adapter) if task.sum else None
    if panels is None:
        return None
    printed = partial(print_workgroup_tile, shared=panels[1], f16=task.adapter.f16)
    return [Scheduled(task.kernel, "workgroup tile", panels[0], printed)]


def _register_tile(task: Task, _: Rest) -> list[Scheduled] | None:
    """A sum of products with a tile in the registers of each invocation."""
    tiles = tiled(task.sum, task.adapter) if task.sum else None
    if tiles is None:
        return None
    return [Scheduled(task.kernel, "tiled", tiles[0], partial(print_kernel, f16=task.adapter.f16, arrays=tiles[1]))]


def _workgroup_reduction(task: Task, _: Rest) -> list[Scheduled] | None:
    """A reduction to few elements, with a workgroup for each element."""
    kernel = task.meaning
    return [_shared(task)] if isinstance(kernel, Reduce) and cooperates(kernel, task.adapter) else None


def _shared(task: Task) -> Scheduled:
    """A reduction with a workgroup for each element."""
    alone = _elementwise(task)
    return alone._replace(
        name="shared", printed=lambda code: print_reduction(code, task.adapter) or alone.printed(code)
    )


def _elementwise(task: Task) -> Scheduled:
    """An invocation for each element, or for four contiguous elements."""
    kernel, adapter = task.meaning, task.adapter
    assert isinstance(kernel, (Map, Reduce))
    vec4 = vectorized(kernel, adapter)
    printed = partial(print_kernel, linear=vec4 is None, f16=adapter.f16)
    return Scheduled(task.kernel, f"vec4 {vec4 is not None}", vec4 or lower(kernel, "gpu"), printed)


SCHEDULES: tuple[Schedule, ...] = (
    _attention,
    _byte_product,
    _few_rows,
    _rows,
    _procedure,
    _workgroup_tile,
    _register_tile,
    _workgroup_reduction,
    lambda task, _: [_elementwise(task)],
)


def scheduled(task: Task, first: int = 0) -> list[Scheduled]:
    """The shaders of a kernel by the first schedule of the table that applies, from number `first` on. The last one
    always applies."""
    every = ((n, SCHEDULES[n]) for n in range(first, len(SCHEDULES)))
    tried = (schedule(task, partial(scheduled, task, n + 1)) for n, schedule in every)
    return next(found for found in tried if found is not None)


def _either(condition: AnyDim, one: Rest, other: Rest) -> list[Scheduled]:
    """The shaders of two forms of a kernel. condition: a dim, 1 in runs that execute `one`, 0 in runs that execute
    `other`; shaders that no run executes are left out."""
    if isinstance(condition, int):
        return one() if condition else other()
    found = [(s, holds) for form, holds in ((one, True), (other, False)) for s in form()]
    either = [(s, s.in_runs(condition, holds)) for s, holds in found]
    return [new for old, new in either if new.lowered.work != 0 or old.lowered.work == 0]

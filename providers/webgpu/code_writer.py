"""Writes WGSL shaders for kernels. Equal kernels share a shader; calls refer to shaders by number."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pyruntime.codegen.choices import ATTENTION, CONTRACTION, Choices
from pyruntime.codegen.loop_ir import LoopCode, Lowered, RangeNumber
from pyruntime.codegen.provider import EXTENT, Invocation, Memory, RowLimits
from pyruntime.errors import our_fault
from pyruntime.ir.expr import Expr, rewrite
from pyruntime.ir.kernel import Kernel, Stmt, Store, Tensor, root, updates_state
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import rebuild

from .adapter import Adapter
from .limits.integer_ranges import Ranges
from .limits.iterations import main_part, parts
from .limits.support import conditions, reason
from .printer.loops import Shader, generic, unless_faulty
from .schedules import Scheduled, Task, scheduled
from .schedules.attention import joints

# A copy costs a submission and a wait of about 100 microseconds.
LONG_ROW = 8192  # elements: longer rows stay separate reductions and maps, which use several workgroups
MEMORY = Memory("webgpu", "the GPU", widest=4, extent=EXTENT, copy_cost=200_000, byte_cost=2)


class GpuProvider:
    name = "webgpu"
    op = "gpu"
    memory = MEMORY

    def __init__(self, adapter: Adapter | None = None, refused: Mapping[str, str] | None = None) -> None:
        """refused: by node, why it does not run on this GPU: a driver refused its shader"""
        self.adapter = adapter or Adapter()
        self.refused = refused or {}
        self.ranges = Ranges()

    def supports(self, kernel: Kernel) -> str:
        return self.refused.get(kernel.node, "") or reason(kernel, self.adapter, self.ranges)

    def conditions(self, kernel: Kernel) -> list[tuple[AnyDim, str]]:
        return conditions(kernel, self.adapter)

    def code_writer(self, *, choices: Choices | None = None, **_: Any) -> WgslCodeWriter:
        return WgslCodeWriter(self.adapter, choices or Choices())


class WgslCodeWriter:
    """Collects the shaders of one Program. kernels: those that the shaders run"""

    routines: dict[str, Any] = {}  # contractions are scheduled from their definitions (schedules/register_tile.py)

    def __init__(self, adapter: Adapter, choices: Choices) -> None:
        self.adapter = adapter
        self.scratch, self.products = 0, False
        self.rows = RowLimits(adapter.storage_buffers - 1, LONG_ROW)  # one binding is for the fault record
        self.choices = choices
        self.shaders: list[Shader] = []
        self.size = 0  # bytes of the shaders' sources
        self.numbers: dict[Any, int] = {}
        self.kernels: list[Kernel] = []

    def segment(
        self, name: str, kernels: Sequence[Kernel], private: Collection[int], written: Callable[[str], None]
    ) -> list[Invocation]:
        calls: list[Invocation] = []
        attention = joints(kernels, private, self._chosen)
        for kernel in kernels:
            with our_fault("writing its shader", kernel.node):
                for part in parts(kernel, self.adapter):
                    task = Task(part, self._chosen(kernel.node), attention.get(id(kernel)))
                    calls += [self._invocation(kernel, one) for one in scheduled(task)]
            written(kernel.node)
        return calls

    def finish(self) -> bytes:
        """The shaders as JSON."""
        return json.dumps([asdict(s) for s in self.shaders], separators=(",", ":")).encode()

    def loop_form(self, kernel: Kernel) -> LoopCode:
        *_, last = scheduled(Task(main_part(kernel, self.adapter), self._chosen(kernel.node)))
        return one_binding_each(last.lowered).code

    def text(self, function: str) -> str:
        return self.shaders[int(function)].source

    def _chosen(self, node: str) -> Adapter:
        """The adapter with the schedules that are chosen for kernels of this node."""
        contraction, form = (self.choices.of(knob, node) or "" for knob in (CONTRACTION, ATTENTION))
        return replace(self.adapter, contraction=contraction, attention=form)

    def _invocation(self, kernel: Kernel, one: Scheduled) -> Invocation:
        """The call of a shader that computes the kernel, or a part of it."""
        self.kernels.append(one.kernel)
        lowered, updates = one_binding_each(one.lowered), updates_state(one.kernel)
        ranges = next((n for n, p in enumerate(lowered.params) if isinstance(p, RangeNumber)), -1)
        key = (lowered.code.key(), one.name, updates, ranges)
        if key not in self.numbers:
            self.numbers[key] = len(self.shaders)
            shader = one.printed(lowered.code)
            shader = replace(unless_faulty(shader) if updates else shader, ranges=ranges)
            self.shaders.append(generic(shader) if self.adapter.specialises else shader)
            self.size += len(self.shaders[-1].source)
        name, scratch = str(self.numbers[key]), list(one.scratch)
        return Invocation(
            name, lowered.tensors, lowered.params, lowered.work, kernel.node, scratch, results=kernel.outputs
        )  # fmt: skip


def one_binding_each(lowered: Lowered) -> Lowered:
    """The kernel with one binding for tensors that share a buffer (reshapes of each other): WebGPU does not allow a
    buffer to be bound twice for writing."""
    places: dict[int, int] = {}
    tensors: list[Tensor] = []
    numbers = []
    for t in lowered.tensors:
        if root(t).uid not in places:
            places[root(t).uid] = len(tensors)
            tensors.append(t)
        numbers.append(places[root(t).uid])
    if len(tensors) == len(lowered.tensors):
        return lowered
    code = lowered.code
    buffers = tuple([code.buffers[numbers.index(n)] for n in range(len(tensors))])
    body = _renumbered(code.body, numbers)
    return Lowered(replace(code, buffers=buffers, body=body), tensors, lowered.params, lowered.work)


def _renumbered(body: list[Stmt], numbers: list[int]) -> list[Stmt]:
    memo: dict[int, Expr] = {}

    def load(e: Expr) -> Expr | None:
        if isinstance(e.value, str):
            return None
        return Expr(e.op, e.args, e.dtype, numbers[e.value]) if e.op in ("load", "load4", "word") else None

    def inner(statements: list[Stmt]) -> list[Stmt]:
        out = [rebuild(s, lambda e: rewrite(e, load, memo), inner) for s in statements]
        return [
            Store(numbers[s.target], s.coords, s.value) if isinstance(s, Store) and not isinstance(s.target, str) else s
            for s in out
        ]

    return inner(body)

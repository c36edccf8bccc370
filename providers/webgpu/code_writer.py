"""Writes WGSL shaders for kernels. Equal kernels share a shader; calls refer to shaders by number."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from pyruntime.codegen.choices import ATTENTION_FORM, CONTRACTION_TILE, Choices
from pyruntime.codegen.loop_ir import LoopCode, Lowered
from pyruntime.codegen.provider import EXTENT, Invocation, Memory, RowLimits
from pyruntime.errors import our_fault
from pyruntime.ir import shape as sh
from pyruntime.ir.expr import Expr, rewrite
from pyruntime.ir.kernel import Call, Kernel, Loops, Stmt, Store, Tensor, root, updates_state
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import rebuild

from .adapter import Adapter
from .limits.integer_ranges import Ranges
from .limits.support import conditions, reason
from .printer.loops import Shader, generic, print_kernel, print_workgroup_tile, unless_faulty
from .schedules import Meaning, Scheduled, attention, attention_chain, scheduled, shared
from .schedules.byte_products import FEW, ByteProduct, byte_product
from .schedules.few_rows import has_few_rows

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
        self.scratch = 0
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
        chains = {id(chain.last): chain for chain in attention_chain.find(kernels, private)}
        joined = {key: attention.joined(chain, self._chosen(chain.last.node)) for key, chain in chains.items()}
        parts = {id(k): joined[key] for key, chain in chains.items() for k in chain.kernels}
        for kernel in kernels:
            one = parts.get(id(kernel), 0)
            with our_fault("writing its shader", kernel.node):
                apart = [] if one == 1 else self._calls(kernel)
                together = self._attention(chains[id(kernel)]) if joined.get(id(kernel), 0) != 0 else []
            calls += either(one, together, apart)
            written(kernel.node)
        return calls

    def _calls(self, kernel: Kernel) -> list[Invocation]:
        """The kernel, or two forms of which a run skips one."""
        meaning = _meaning(kernel)
        rounded = byte_product(meaning, self._chosen(kernel.node))
        by_sums = has_few_rows(meaning, self.adapter)
        few = by_sums if rounded is None else sh.compare("le", rounded.rows, FEW)
        first = [] if few == 0 else [self.invoke(kernel) if by_sums == 0 else self._by_sums(kernel)]
        if few == 1:
            return first
        return either(few, first, [self.invoke(kernel)] if rounded is None else self._byte_product(kernel, rounded))

    def _by_sums(self, kernel: Kernel) -> Invocation:
        return self._invocation(kernel, shared(_meaning(kernel), self.adapter))

    def _byte_product(self, kernel: Kernel, product: ByteProduct) -> list[Invocation]:
        """The two kernels that round the rows, and the product."""
        calls = [self._invocation(k, scheduled(k, self.adapter), kernel) for k in (product.scales, product.words)]
        printed = partial(print_kernel, f16=self.adapter.f16, arrays=product.arrays)
        return [*calls, self._invocation(kernel, Scheduled(product.lowered, "byte product", printed))]

    def _attention(self, chain: attention_chain.Chain) -> list[Invocation]:
        """One kernel, or two: parts of the keys, and what joins them."""
        adapter = self._chosen(chain.last.node)
        parts = attention.parts_of(chain, adapter)
        lowered, arrays = attention.attention(chain, adapter, parts)
        printed = partial(print_workgroup_tile, shared=arrays, f16=self.adapter.f16)
        calls = [self._invocation(chain.last, Scheduled(lowered, "attention", printed))]
        if parts is not None:
            calls[0].scratch = [parts]
            joining = Scheduled(attention.joining(chain, parts), "", partial(print_kernel, f16=self.adapter.f16))
            calls.append(self._invocation(chain.last, joining))
        return calls

    def finish(self) -> bytes:
        """The shaders as JSON."""
        return json.dumps([asdict(s) for s in self.shaders], separators=(",", ":")).encode()

    def loop_form(self, kernel: Kernel) -> LoopCode:
        return one_binding_each(self._scheduled(kernel).lowered).code

    def text(self, function: str) -> str:
        return self.shaders[int(function)].source

    def _scheduled(self, kernel: Kernel) -> Scheduled:
        return scheduled(_meaning(kernel), self._chosen(kernel.node))

    def _chosen(self, node: str) -> Adapter:
        """The adapter with what is chosen for kernels of this node."""
        tile, form = (self.choices.of(knob, node) or 0 for knob in (CONTRACTION_TILE, ATTENTION_FORM))
        return replace(self.adapter, tile=tile, attention=form)

    def invoke(self, kernel: Kernel) -> Invocation:
        return self._invocation(kernel, self._scheduled(kernel))

    def _invocation(self, kernel: Kernel, schedule: Scheduled, helped: Kernel | None = None) -> Invocation:
        """helped: the kernel of the model for which this one makes scratch"""
        meaning = _meaning(kernel)
        self.kernels.append(kernel)
        lowered = one_binding_each(schedule.lowered)
        key = (lowered.code.key(), schedule.name, updates_state(kernel))
        if key not in self.numbers:
            self.numbers[key] = len(self.shaders)
            shader = schedule.printed(lowered.code)
            shader = unless_faulty(shader) if updates_state(kernel) else shader
            self.shaders.append(generic(shader) if self.adapter.specialises else shader)
            self.size += len(self.shaders[-1].source)
        scratch = list(meaning.scratch) if isinstance(meaning, Loops) else []
        if helped is not None:
            scratch, kernel = [*kernel.outputs], helped
        name, results = str(self.numbers[key]), kernel.outputs
        return Invocation(
            name, lowered.tensors, lowered.params, lowered.work, kernel.node, scratch, results=results
        )  # fmt: skip


def either(first: AnyDim, calls: list[Invocation], others: list[Invocation]) -> list[Invocation]:
    """The calls of two forms of a kernel, of which a run executes one. first: a dim, 1 in runs that execute `calls`, 0
    in runs that execute `others`"""
    for call in calls:
        call.work = sh.select(first, call.work, 0)
    for call in others:
        call.work = sh.select(first, 0, call.work)
    return [*calls, *others]


def _meaning(kernel: Kernel) -> Meaning:
    meaning = kernel.definition() if isinstance(kernel, Call) else kernel
    assert isinstance(meaning, Meaning)
    return meaning


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

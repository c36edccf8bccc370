"""Writes a WebAssembly module for kernels: equal kernels share a function, each segment has a `run` function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyruntime.codegen.choices import Choices
from pyruntime.codegen.loop_ir import LoopCode, Lowered
from pyruntime.codegen.provider import LINEAR, Invocation, RowLimits
from pyruntime.codegen.repeats import Repeats
from pyruntime.codegen.schedule import lower
from pyruntime.errors import our_fault
from pyruntime.ir.dtype import C64, C128, STRING
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce, Store, Tensor, root
from pyruntime.ir.shape import AnyDim
from pyruntime.ir.statements import nodes, statements

from .printer.assembler import Function, Module
from .printer.loops import print_kernel
from .routines import attention, routines
from .threads import spmd
from .threads.cost import in_ranges

MAX_PAGES = 65536  # 4 GiB, so that the module accepts any memory
SCRATCH = 400 << 10  # bytes of the panels that a thread of a product or convolution packs (schedules/gemm.py, blocks)


class WasmProvider:
    name = "wasm"
    op = "wasm"
    memory = LINEAR

    def supports(self, kernel: Kernel) -> str:
        if not isinstance(kernel, (Map, Reduce, Loops, Call)):
            return f"{type(kernel).__name__} runs on the host"
        for t in (*kernel.inputs, *kernel.outputs):
            if t.dtype in (STRING, C64, C128):
                return f"{t.dtype} tensors cannot be stored in WebAssembly memory"
        return ""

    def code_writer(self, **target: Any) -> WasmCodeWriter:
        return WasmCodeWriter(**target)


class WasmCodeWriter:
    """relaxed: the host has relaxed SIMD
    shared, threads: whether threads share the memory, and their largest number
    dots: signedness of the second operand for which the host's relaxed dot product does not saturate, "" if it does
    memories: modules may have several memories
    choices: results of tuning
    cranelift: Cranelift compiles the module
    native: names of functions that the host provides in machine code (native_imports.py)
    further: numbers of further memories, by uid of the tensors in them
    """

    def __init__(
        self, *, relaxed: bool, shared: bool, threads: int = 1, dots: str = "", memories: bool = False,
        choices: Choices | None = None, cranelift: bool = False, native: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.memories = memories
        self.choices = choices or Choices()
        self.further: dict[int, int] = {}
        self._variants: Any = None
        native = native if relaxed else ()
        self.routines = routines("unsigned" if "block_int8" in native else dots if relaxed else "")
        self.rows = RowLimits(sys.maxsize, sys.maxsize)
        self.threads = threads
        self.scratch, self.products = threads * SCRATCH, "block" in native
        self.module = Module(shared=shared, max_pages=MAX_PAGES, cranelift=cranelift)
        if native:
            from .printer.native_imports import import_into  # pages do not have it

            import_into(self.module, native)
        self.relaxed = relaxed
        self.functions: dict[Any, Function] = {}
        self.repeats = Repeats()
        self.made: set[int] = set()
        self._counted = self._size = 0  # number of functions in `_size`, and their bytes

    @property
    def size(self) -> int:
        functions = self.module.functions
        self._size += sum(len(f.code) for f in functions[self._counted :])
        self._counted = len(functions)
        return self._size

    def segment(
        self, name: str, kernels: Sequence[Kernel], private: Collection[int], written: Callable[[str], None]
    ) -> list[Invocation]:
        calls: list[Invocation] = []
        parts: list[spmd.Part] = []
        chains = {id(chain.last): chain for chain in attention.find(kernels, private)}
        within = {id(k) for chain in chains.values() for k in (chain.scores, chain.rows)}
        for kernel in kernels:
            if id(kernel) in within:
                continue
            chain = chains.get(id(kernel))
            with our_fault("writing its WebAssembly", kernel.node):
                new = self._chain(chain) if chain else self._kernel(kernel)
                self._use_memories(new)
            for c in new:
                c.results = kernel.outputs
            written(kernel.node)
            calls += new
            if self.threads > 1:
                parts += spmd.parts(kernel, new)
        if self.threads > 1:
            spmd.run(self.module, name, parts, self.made)
        else:
            self._run(name, calls)
        return calls

    def _use_memories(self, calls: Sequence[Invocation]) -> None:
        """If operands of calls are in further memories, replace the functions by their variants for these memories."""
        for c in calls if self.further else ():
            memories = [self.further.get(root(t).uid, 0) for t in c.tensors]
            if any(memories):
                from .printer.memory_variants import Variants  # imported here because few models need it

                self._variants = self._variants or Variants(self.module)
                c.function = self._variants.kernel(self.module.exported[c.function], memories).name

    def step_loop(self, name: str, run: str, stacks: int) -> None:
        from .step_loop import write  # imported here because few models need it

        write(self.module, name, self.module.exported[run], stacks)

    def finish(self) -> bytes:
        self.module.memories = 1 + max(self.further.values(), default=0)
        return self.module.to_bytes()

    def loop_form(self, kernel: Kernel) -> LoopCode | None:
        if isinstance(kernel, Call):
            return None
        return lower(in_ranges(kernel)[0] if isinstance(kernel, Loops) else kernel).code

    def text(self, function: str) -> str:
        """Return the text of a function and of the functions that it calls."""
        from .printer.disassembler import called, disassemble  # imported here because only listings need it

        shown = [self.module.exported[function]]
        for f in shown:
            shown += [g for n in called(f) if (g := self.module.functions[n]) not in shown]
        return "\n".join(map(disassemble, shown))

    def function(self, key: Any, make: Any, label: str = "k") -> Function:
        """The function for a structural key, written on first use."""
        if key not in self.functions:
            self.functions[key] = make(f"{label}_{len(self.functions)}")
        return self.functions[key]

    def _kernel(self, kernel: Kernel) -> list[Invocation]:
        if isinstance(kernel, Call):
            routine = self.routines[kernel.routine]
            return self.repeats.calls([kernel], lambda: routine.emit(self, kernel), self.choices.at(kernel.node))
        return self.repeats.calls([kernel], lambda: [self._plain(kernel)])

    def _plain(self, kernel: Kernel) -> Invocation:
        """The call of a kernel that no routine computes."""
        consecutive: AnyDim = 1
        if isinstance(kernel, Loops):
            kernel, consecutive = in_ranges(kernel)
        call = self.invoke(lower(kernel), kernel)
        call.consecutive = consecutive
        return call

    def _chain(self, chain: attention.Chain) -> list[Invocation]:
        return self.repeats.calls([chain.scores, chain.rows, chain.last], lambda: attention.emit(self, chain))

    def invoke(self, lowered: Lowered, kernel: Kernel) -> Invocation:
        code = lowered.code

        def make(name: str) -> Function:
            return print_kernel(self.module, name, code, self.relaxed)

        f = self.function(code.key(), make, type(kernel).__name__.lower())
        scratch = list(kernel.scratch) if isinstance(kernel, Loops) else []
        inplace = [(kernel.outputs[0], t) for t in _overwritten(kernel, lowered)]
        return Invocation(f.name, lowered.tensors, lowered.params, lowered.work, kernel.node, scratch, inplace)

    def _run(self, name: str, calls: Sequence[Invocation]) -> None:
        """Write run(table, tid, threads, epoch) for one thread: the table has the calls' argument blocks in order."""
        f = self.module.function(name, ["i32"] * 4)
        table, tid, _, _ = f.params
        offset = 0
        for c in calls:
            words = len(c.tensors) + len(c.params)
            f.emit(table).i32(offset).emit("i32.add").i32(0).emit(table).mem("i32.load", offset + 4 * words)
            f.emit(tid).call(self.module.exported[c.function])
            offset += 4 * (words + 1)


def _overwritten(kernel: Kernel, lowered: Lowered) -> list[Tensor]:
    """Tensors that the result of a kernel may overwrite."""
    if isinstance(kernel, Map):
        return [lowered.tensors[n] for n in _inplace(lowered.code)]
    if isinstance(kernel, Loops) and kernel.unit_is_row and len(kernel.outputs) == 1:
        roots = [root(t) for t in kernel.args]
        return [t for t in kernel.args if roots.count(t) == 1 and attention.overwrites(kernel, t)]
    return []


def _inplace(code: LoopCode) -> list[int]:
    """Buffers that the store of a map may overwrite: every load from them has the store's own address."""
    stores = [s for s in statements(code.body) if isinstance(s, Store)]
    loads: dict[int, set[Any]] = {}
    for x in nodes(code.body):
        if x.op == "load":
            loads.setdefault(x.value, set()).add(x.args[0].key())
    if len(stores) != 1:
        return []
    own = {stores[0].coords[0].key()}
    size = code.buffers[0][0].size
    return [n for n, at in loads.items() if at == own and code.buffers[n][0].size == size]

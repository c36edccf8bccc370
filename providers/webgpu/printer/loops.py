"""Prints the loop form of a kernel as a WGSL compute shader, in which each work unit is one invocation.

Group 0 has a kernel's buffers as bindings 0 … n-1, all read_write (several may be in one GPUBuffer), and its integer
parameters, followed by the number of work units, as the uniform block n. Dispatches beyond the limit of one dimension
use two. Elements of less than 32 bits share words: if work unit u stores only element u (`linear`), one invocation runs
all units of a word; any other kernel stores with atomics.

Spec: https://www.w3.org/TR/WGSL/
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyruntime.codegen.half_floats import in_float32
from pyruntime.codegen.loop_ir import LoopCode, map_expressions
from pyruntime.ir.dtype import F16, DType
from pyruntime.ir.expr import Expr, binary, rewrite
from pyruntime.ir.kernel import Accum, For, Let, Set, Stmt, Store, When, While
from pyruntime.ir.reference import COMBINE
from pyruntime.ir.statements import nodes, statements
from pyruntime.mathlib import expand

from .expressions import Lines, Values, fold
from .storage import is_packed, register, stored_type
from .wgsl_functions import CHECKED, text_of

GROUP = 64  # invocations of a workgroup
SUBGROUPS = "enable subgroups;\n"
HALVES = "enable f16;\n"
_FAULTS = "@group(0) @binding({}) var<storage, read_write> faults: array<atomic<i32>>;"
_FIRST = "let first = at.y * groups.x + at.x;"


@dataclass(frozen=True, slots=True)
class Shader:
    """source: WGSL with the entry point "main"
    buffers, params: the numbers of buffers and parameters
    span: work units of one workgroup
    faults: whether the last buffer is the fault record (wgsl_functions.CHECKED)
    ranges: the number of the parameter that is the number of dispatches in a call, and in each of them its own number;
        -1 if a call has one dispatch
    """

    source: str
    buffers: int
    params: int
    span: int
    faults: bool = False
    ranges: int = -1


@dataclass(frozen=True, slots=True)
class Array:
    """An array that the loop form refers to by name. space: "workgroup" or "private"."""

    name: str
    dtype: DType
    count: int
    space: str = "workgroup"

    def declared(self) -> str:
        return f"var<{self.space}> {self.name}: array<{register(self.dtype)}, {self.count}>;\n"


def print_workgroup_tile(code: LoopCode, shared: Sequence[Array], f16: bool) -> Shader:
    """The shader of a kernel in which each workgroup runs one work unit."""
    return Printer(prepared(code), False, f16).together("".join([x.declared() for x in shared]))


def print_kernel(code: LoopCode, linear: bool = False, f16: bool = False, arrays: Sequence[Array] = ()) -> Shader:
    """The shader of a kernel. f16: the adapter has shader-f16."""
    return Printer(prepared(code), linear, f16).shader("".join([x.declared() for x in arrays]))


def prepared(code: LoopCode) -> LoopCode:
    """The loop form without transcendental functions, operations on constants, and half floats between loads and
    stores."""
    return map_expressions(in_float32(code), lambda e: rewrite(expand(e), fold))


def declare(
    buffers: Sequence[DType], params: int, f16: bool, atomic: set[int], vec4_buffers: set[int], faults: bool
) -> str:
    """Declarations of the bindings and the parameter block."""
    out = []
    for n, dtype in enumerate(buffers):
        kind = "atomic<u32>" if n in atomic else stored_type(dtype, f16)
        kind = f"vec4<{kind}>" if n in vec4_buffers else kind
        out.append(f"@group(0) @binding({n}) var<storage, read_write> b{n}: array<{kind}>;")
    if faults:
        out.append(_FAULTS.format(len(buffers)))
    out.append(f"struct Params {{ words: array<vec4<i32>, {params // 4 + 1}> }}")
    out.append(f"@group(0) @binding({len(buffers) + faults}) var<uniform> params: Params;")
    return "\n".join(out) + "\n"


def word(n: int) -> str:
    """Word n of the parameter block."""
    return f"params.words[{n // 4}].{'xyzw'[n % 4]}"


def generic(shader: Shader) -> Shader:
    """The shader with parameters that no driver specialises on (see `Adapter.specialises`): their index depends on
    `at.z`, which is always 0, but the driver cannot know (docs/design/gpu.md#lavapipe)."""
    return replace(shader, source=shader.source.replace("params.words[", "params.words[at.z + "))


def unless_faulty(shader: Shader) -> Shader:
    """The shader, which does nothing once the fault record has a fault. The executor reads the record after the run, so
    a kernel that changes weights must look itself."""
    source, n = shader.source, shader.buffers
    if not shader.faults:
        params = "@group(0) @binding({}) var<uniform> params"
        source = source.replace(params.format(n), f"{_FAULTS.format(n)}\n{params.format(n + 1)}")
    ends = "if (atomicLoad(&faults[0]) != 0 || atomicLoad(&faults[3]) != 0) { return; }"
    source = source.replace(_FIRST, f"{ends}\n  {_FIRST}")
    return replace(shader, source=source, buffers=n + (not shader.faults), faults=True)


class Printer:
    """Prints statements as WGSL. Subclasses print a part of a kernel with `block`."""

    def __init__(self, code: LoopCode, linear: bool, f16: bool) -> None:
        (outer,) = code.body
        assert isinstance(outer, For)
        self.code = code
        self.outer = outer
        self.f16 = f16
        self.dtypes = [d for d, _ in code.buffers]
        packed = {n for n, (d, w) in enumerate(code.buffers) if w and is_packed(d, f16)}
        self.linear = linear and bool(packed)
        self.atomic = set() if self.linear else packed
        self.lines = Lines()
        self.values = Values(self.lines, f16, self.atomic, _vec4_buffers(code.body))

    def shader(self, memory: str = "") -> Shader:
        """A shader in which each invocation runs one work unit, or all units of a word. memory: declarations of
        its arrays."""
        per = 4 // self.dtypes[0].size if self.linear else 1
        if self.linear:
            self._words(per)
        else:
            self.begin(f"i32(first * {GROUP}u + lane)")
            self.block(self.outer.body)
        return self.finish(GROUP * per, memory)

    def together(self, memory: str) -> Shader:
        """A shader in which each workgroup runs one work unit. memory: declarations of the memory that it shares."""
        self.begin("i32(first)")
        self.block(self.outer.body)
        return self.finish(1, memory)

    def begin(self, unit: str, builtins: Sequence[str] = ()) -> None:
        """Print the head of main, which ends for work units that do not exist."""
        self.entry(builtins)
        self.lines.add(f"let v{self.outer.var} = {unit};")
        self.lines.add(f"if (v{self.outer.var} >= {word(self.code.params)}) {{ return; }}")

    def entry(self, builtins: Sequence[str] = ()) -> None:
        """Print the start of main. `first` is the number of the workgroup, `lane` the number of the invocation in the
        workgroup. builtins: names of further built-in values of type u32."""
        more = "".join(f", @builtin({name}) {name}: u32" for name in builtins)
        self.lines.text.append(
            f"@compute @workgroup_size({GROUP})\n"
            "fn main(@builtin(workgroup_id) at: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,\n"
            f"        @builtin(local_invocation_index) lane: u32{more}) {{"
        )
        self.lines.add(_FIRST)
        for n in sorted({x.value for x in nodes(self.code.body) if x.op == "param"}):
            self.lines.add(f"let p{n} = {word(n)};")

    def finish(self, span: int, more: str = "", subgroups: bool = False) -> Shader:
        """End main, and return the shader. more: declarations; span: see Shader."""
        self.lines.text.append("}")
        faults = self.values.faults
        head = declare(self.dtypes, self.code.params, self.f16, self.atomic, self.values.vec4_buffers, faults)
        checks = CHECKED if faults else ""
        body = head + more + checks + text_of(self.values.helpers) + "\n".join(self.lines.text) + "\n"
        source = (SUBGROUPS if subgroups else "") + (HALVES if re.search(r"\bf16\b", body) else "") + body
        return Shader(source, len(self.dtypes) + faults, self.code.params, span, faults)

    def _words(self, per: int) -> None:
        lines, unit = self.lines, f"v{self.outer.var}"
        self.entry()
        lines.add(f"let word = i32(first * {GROUP}u + lane);")
        lines.add(f"let work = {word(self.code.params)};")
        lines.add(f"if (word * {per} >= work) {{ return; }}")
        lines.add("var packed = 0u;")
        lines.open(f"for (var k = 0; k < {per}; k++)")
        lines.add(f"let {unit} = word * {per} + k;")
        lines.add(f"if ({unit} >= work) {{ break; }}")
        self.block(self.outer.body)
        lines.close()
        lines.add("b0[word] = packed;")

    # ── statements ───────────────────────────────────────────────────────────────────────────────────────────────

    def block(self, body: list[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        lines = self.lines
        if isinstance(s, Let) and s.value.op == "barrier":
            lines.add("workgroupBarrier();")
        elif isinstance(s, Let):
            (value,) = self.values.root(s.value)
            if s.mutable:
                lines.add(f"var v{s.var}: {register(s.value.dtype)} = {value};")
            else:
                lines.add(f"let v{s.var} = {value};")
        elif isinstance(s, Set):
            (value,) = self.values.root(s.value)
            lines.add(f"v{s.var} = {value};")
        elif isinstance(s, Accum):
            v = Expr("var", (), s.value.dtype, s.var)
            (value,) = self.values.root(binary(COMBINE[s.op], v, s.value))
            lines.add(f"v{s.var} = {value};")
        elif isinstance(s, Store):
            self._store(s)
        elif isinstance(s, For):
            self._for(s)
        elif isinstance(s, While):
            lines.open("loop")
            lines.add(f"if ({self.condition(s.condition, holds=False)}) {{ break; }}")
            self.inner(s.body)
            lines.close()
        else:
            self._when(s)

    def _for(self, s: For) -> None:
        end = self.values.named(self.extent(s.extent))
        self.lines.open(f"for (var v{s.var} = 0; v{s.var} < {end}; v{s.var}++)")
        self.inner(s.body)
        self.lines.close()

    def _when(self, s: When) -> None:
        self.lines.open(f"if ({self.condition(s.condition, holds=True)})")
        self.inner(s.then)
        if s.orelse:
            self.lines.close(" else {")
            self.inner(s.orelse)
        self.lines.close()

    def inner(self, body: list[Stmt]) -> None:
        """Print the statements inside a loop or branch."""
        self.block(body)

    def extent(self, e: Expr) -> str:
        """The text of a loop's extent."""
        return self.values.root(e)[0]

    def condition(self, e: Expr, holds: bool) -> str:
        """The text of a condition, or of its opposite."""
        return ("" if holds else "!") + self.values.root(e)[0]

    def _store(self, s: Store) -> None:
        if s.value.op == "vec":
            at, *four = self.values.root(s.coords[0], *s.value.args)
            dtype = self.dtypes[s.target]
            text = f"vec4<{register(dtype)}>({', '.join(four)})"
            self.lines.add(f"b{s.target}[{at} >> 2u] = {f'vec4<f16>({text})' if dtype is F16 else text};")
            return
        at, value = self.values.root(s.coords[0], s.value)
        if isinstance(s.target, str):
            self.lines.add(f"{s.target}[{at}] = {value};")
            return
        self.store(s.target, at, value, self.dtypes[s.target])

    def store(self, buffer: int, at: str, value: str, dtype: DType) -> None:
        """Print the store of a register value to an element."""
        lines = self.lines
        if not is_packed(dtype, self.f16):
            if buffer in self.values.vec4_buffers:
                at = self.values.named(at)
                at = f"{at} >> 2u][{at} & 3"
            lines.add(f"b{buffer}[{at}] = {f'f16({value})' if dtype is F16 else value};")
            return
        bits, mask = 8 * dtype.size, (1 << 8 * dtype.size) - 1
        pattern = f"({self.values.to_pattern(value, dtype)} & {mask:#x}u)"
        if self.linear:
            lines.add(f"packed |= {pattern} << (u32(k) * {bits}u);")
            return
        at = self.values.named(at)
        target = f"&b{buffer}[{at} >> {2 if dtype.size == 1 else 1}u]"
        shift = self.values.named(f"u32({at} & {4 // dtype.size - 1}) * {bits}u")
        bits_ = self.values.named(f"{pattern} << {shift}")
        lines.add(f"atomicAnd({target}, ~({mask:#x}u << {shift}));")
        lines.add(f"atomicOr({target}, {bits_});")


def _vec4_buffers(body: list[Stmt]) -> set[int]:
    """Buffers of which four elements are read or written at once."""
    written = {s.target for s in statements(body) if isinstance(s, Store) and s.value.op == "vec"}
    return written | {x.value for x in nodes(body) if x.op == "load4"}

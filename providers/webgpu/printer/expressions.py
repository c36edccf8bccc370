"""Prints expressions as WGSL. A shared node becomes a `let` at its first use; a guard becomes an `if`."""

from __future__ import annotations

import struct

from pyruntime.ir import reference
from pyruntime.ir.dtype import F16, DType
from pyruntime.ir.expr import BINARY, COMPARE, UNARY, Expr, const, walk

from .conversions import Conversions, narrowed
from .storage import is_packed, is_pattern, register

LONG = 160  # characters: longer operands become variables, which keeps lines readable and nesting shallow
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^",
          "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}  # fmt: skip
_SAME = {"abs", "sqrt", "floor", "ceil", "trunc", "round", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan",
         "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"}  # fmt: skip
_WRAPPING = {"add", "sub", "mul", "neg", "abs", "shl", "bitnot", "div", "pow"}


class Lines:
    """Indented text."""

    def __init__(self, depth: int = 1) -> None:
        self.text: list[str] = []
        self.depth = depth

    def add(self, line: str) -> None:
        self.text.append("  " * self.depth + line)

    def open(self, line: str) -> None:
        self.add(line + " {")
        self.depth += 1

    def close(self, more: str = "") -> None:
        self.depth -= 1
        self.add("}" + more)
        if more:
            self.depth += 1


def fold(e: Expr) -> Expr | None:
    """Fold an operation on constants, because WGSL's compile-time evaluation refuses overflow, inf and NaN."""
    if (
        not e.args
        or e.op in ("load", "load4", "word", "checked")
        or any(a.op != "const" for a in e.args)
        or is_pattern(e.dtype)
    ):
        return None
    try:
        value = reference.value(e, {}, {})
        return const(reference.store_value(value, e.dtype), e.dtype)
    except (TypeError, KeyError, struct.error):
        return None


def _plain_load(e: Expr) -> bool:
    """Whether e is a load whose address depends on no other load."""
    return e.op == "load" and all(x.op not in ("load", "guard", "checked") for x in walk(e.args[0]))


class Values(Conversions):
    """Prints expressions. Statements that they need go to `lines` before them."""

    def __init__(self, lines: Lines, f16: bool, atomic: set[int], vec4_buffers: set[int]) -> None:
        super().__init__(f16)
        self.lines = lines
        self.atomic = atomic  # buffers whose words are atomic
        self.vec4_buffers = vec4_buffers  # buffers that are arrays of vec4
        self.names: dict[int, str] = {}  # names of variables other than v<number>
        self.replaced: dict[int, str] = {}  # by buffer: the text that replaces its loads
        self.count = 0
        self.faults = False  # whether the kernel checks indices
        self._shared: set[int] = set()
        self._ready: list[dict[int, str]] = [{}]

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def root(self, *exprs: Expr) -> list[str]:
        """The texts of expressions that share nodes only with each other; prints the statements that they need."""
        uses: set[int] = set()
        seen: set[int] = set()
        self._shared = set()
        for e in exprs:
            (self._shared if id(e) in uses else uses).add(id(e))
            for x in walk(e, seen):
                for a in x.args:
                    (self._shared if id(a) in uses else uses).add(id(a))
        self._ready = [{}]
        return [self.value(e) for e in exprs]

    def value(self, e: Expr) -> str:
        if not e.args:
            return self._leaf(e)
        for scope in reversed(self._ready):
            if id(e) in scope:
                return scope[id(e)]
        text = self._guard(e) if e.op == "guard" else self._compute(e)
        if e.op != "guard" and (id(e) in self._shared or len(text) > LONG):
            name = self.fresh()
            self.lines.add(f"let {name} = {text};")
            text = name
        self._ready[-1][id(e)] = text
        return text

    def _leaf(self, e: Expr) -> str:
        if e.op == "var":
            return self.names.get(e.value) or f"v{e.value}"
        if e.op == "param":
            return f"p{e.value}"
        if e.op == "invocation":
            return "i32(lane)"
        return self.constant(e.value, e.dtype)

    def _guard(self, e: Expr) -> str:
        c, a, b = e.args
        condition = self.value(c)
        if _plain_load(a) and a.value not in self.replaced and b.op == "const":
            return self._guarded_load(self.named(condition), a, self.value(b))
        name = self.fresh()
        self.lines.add(f"var {name}: {register(e.dtype)};")
        self.lines.open(f"if ({condition})")
        self._branch(name, a)
        self.lines.close(" else {")
        self._branch(name, b)
        self.lines.close()
        return name

    def _guarded_load(self, condition: str, e: Expr, otherwise: str) -> str:
        """A guarded load without a branch, which loads element 0 if the condition is false: SIMT lanes take both sides
        anyway. 3x3 convolutions got faster, but by no more than the noise; measure again on an idle machine."""
        at = self.named(f"select(0, {self.value(e.args[0])}, {condition})")
        return self.named(f"select({otherwise}, {self.element(e.value, at, e.dtype)}, {condition})")

    def _branch(self, name: str, e: Expr) -> None:
        self._ready.append({})
        self.lines.add(f"{name} = {self.value(e)};")
        self._ready.pop()

    def _compute(self, e: Expr) -> str:
        op = e.op
        if op == "load":
            return self.load(e.value, e.args[0], e.dtype)
        if op == "load4":
            four = f"b{e.value}[{self.value(e.args[0])} >> 2u]"
            return f"vec4<f32>({four})" if e.dtype is F16 else four
        if op == "word":
            at = self.named(self.value(e.args[0]))
            return f"(b{e.value}[{at} >> 2u] >> (u32({at} & 3) * 8u))"
        if op == "dot4":
            return f"dot4I8Packed({self.value(e.args[0])}, {self.value(e.args[1])})"
        if op == "lane":
            return f"{self.value(e.args[0])}.{'xyzw'[e.value]}"
        if op == "checked":
            return self._checked(e)
        if op == "select":
            c, a, b = (self.value(x) for x in e.args)
            return f"select({b}, {a}, {c})"
        if op == "cast":
            return self.cast(self.value(e.args[0]), e.args[0].dtype, e.dtype)
        if op == "bitcast":
            return self.bitcast(self.value(e.args[0]), e.args[0].dtype, e.dtype)
        if op in UNARY:
            return self._unary(e)
        if op in BINARY or op in COMPARE:
            return self._binary(e)
        raise KeyError(op)

    def _checked(self, e: Expr) -> str:
        self.faults = True
        given, extent, site = (self.named(self.value(x)) for x in e.args)
        at = f"select({given}, {given} + {extent}, {given} < 0)" if e.value else given
        return f"checked({at}, {extent}, {given}, {site})"

    # ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────

    def load(self, buffer: int | str, offset: Expr, dtype: DType) -> str:
        if buffer in self.replaced:
            return self.replaced[buffer]
        return self.element(buffer, self.value(offset), dtype)

    def element(self, buffer: int | str, at: str, dtype: DType) -> str:
        """The element with this number as a register value. buffer: its number, or the name of an array in private or
        workgroup memory"""
        if isinstance(buffer, str):
            return f"{buffer}[{at}]"
        if not is_packed(dtype, self.f16):
            place = at
            if buffer in self.vec4_buffers:
                at = self.named(at)
                place = f"{at} >> 2u][{at} & 3"
            return f"f32(b{buffer}[{place}])" if dtype is F16 else f"b{buffer}[{place}]"
        at = self.named(at)
        bits, shift = 8 * dtype.size, 2 if dtype.size == 1 else 1
        word = f"b{buffer}[{at} >> {shift}u]"
        word = f"atomicLoad(&{word})" if buffer in self.atomic else word
        raw = f"({word} >> (u32({at} & {(1 << shift) - 1}) * {bits}u))"
        if dtype.kind == "i":
            return f"(bitcast<i32>({raw} << {32 - bits}u) >> {32 - bits}u)"
        raw = f"({raw} & {(1 << bits) - 1:#x}u)"
        return self.of_pattern(raw, dtype)

    # ── operations ───────────────────────────────────────────────────────────────────────────────────────────────

    def _unary(self, e: Expr) -> str:
        op, x = e.op, self.value(e.args[0])
        if op == "not":
            return f"(!{x})"
        if op == "isnan":
            return self.call("is_nan", x)
        if op == "popcount":
            mask = "" if e.dtype.bits >= 32 else f" & {(1 << e.dtype.bits) - 1:#x}u"
            count = f"countOneBits(bitcast<u32>({x}){mask})"
            return f"i32({count})" if register(e.dtype) == "i32" else count
        if op in _SAME:
            text = x if op == "abs" and e.dtype.kind == "u" else f"{op}({x})"
        elif register(e.dtype) == "u32" and op == "neg":
            text = f"(0u - {x})"
        else:
            text = f"({'-' if op == 'neg' else '~'}{x})"
        return self._normal(text, e)

    def _binary(self, e: Expr) -> str:
        a, b = e.args
        op, kind = e.op, register(a.dtype)
        if kind == "f32" and op in ("eq", "ne") and a is b:
            return ("!" if op == "eq" else "") + self.call("is_nan", self.value(a))
        if kind == "bool" and op not in ("and", "or", "eq", "ne"):
            return self._truth(op, self.value(a), self.value(b))
        if kind == "f32" and op == "ne":  # some compilers treat != as an ordered comparison, false for NaN
            return f"(!({self.value(a)} == {self.value(b)}))"
        if op in _SIGNS:
            return self._normal(f"({self.value(a)} {_SIGNS[op]} {self.value(b)})", e)
        x, y = self.value(a), self.value(b)
        if op in ("min", "max"):
            return self._pick(op, a, b, x, y)
        return self._normal(self._function(op, kind, a, b, x, y), e)

    def _function(self, op: str, kind: str, a: Expr, b: Expr, x: str, y: str) -> str:
        letter = kind[0]
        if op in ("shl", "shr"):
            if b.op == "const" and 0 <= b.value < a.dtype.bits:
                return f"({x} {'<<' if op == 'shl' else '>>'} {int(b.value)}u)"
            return self.call(f"{op}_{letter}", x, f"u32({y})", f"{min(a.dtype.bits, 32)}u")
        if kind == "f32" and op == "div":
            return f"({x} / {y})"
        if op == "pow":
            return self.call("pow_" + letter, x, y if register(b.dtype) == kind else f"{kind}({y})")
        # a parameter is an extent, which is 0 only if no iteration runs
        plain = b.op == "param" or (b.op == "const" and b.value > 0)
        if kind != "f32" and plain and (op != "mod" or kind == "u32"):
            return f"({x} {'/' if op == 'div' else '%'} {y})"
        return self.call(("rem_u" if op == "mod" and kind == "u32" else f"{op}_{letter}"), x, y)

    def _pick(self, op: str, a: Expr, b: Expr, x: str, y: str) -> str:
        """min and max that propagate NaN: a comparison with NaN is false, which selects the operand that may be NaN."""
        if register(a.dtype) != "f32":
            return f"{op}({x}, {y})"
        sign = "<" if op == "min" else ">"
        for fixed, c, v in ((a, x, y), (b, y, x)):
            if fixed.op == "const" and fixed.value == fixed.value:
                v = self.named(v)
                return f"select({v}, {c}, {c} {sign} {v})"
        return self.call(f"{op}_f", x, y)

    def named(self, text: str) -> str:
        if text.isidentifier():
            return text
        name = self.fresh()
        self.lines.add(f"let {name} = {text};")
        return name

    def _truth(self, op: str, x: str, y: str) -> str:
        forms = {"xor": f"({x} != {y})", "lt": f"(!{x} & {y})", "gt": f"({x} & !{y})", "le": f"(!{x} | {y})",
                 "ge": f"({x} | !{y})", "min": f"({x} & {y})", "max": f"({x} | {y})", "mul": f"({x} & {y})",
                 "add": f"({x} | {y})"}  # fmt: skip
        return forms[op]

    def _normal(self, text: str, e: Expr) -> str:
        """Wrap a value to the range of its narrow integer type."""
        if e.op not in _WRAPPING or not e.dtype.is_int or e.dtype.bits >= 32:
            return text
        return narrowed(text, e.dtype)

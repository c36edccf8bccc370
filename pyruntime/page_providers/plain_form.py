"""Kernels as plain data, which crosses to JavaScript as JSON (web/providers.d.ts describes it), and maps read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from pyruntime.emit.symbol_names import SymbolNames
from pyruntime.ir.dtype import BY_NAME, I32
from pyruntime.ir.expr import BINARY, COMPARE, UNARY, Expr, cast, const, index, rebuild
from pyruntime.ir.kernel import Call, Kernel, Loops, Map, Reduce, Tensor, View
from pyruntime.ir.shape import AnyDim, Dim
from pyruntime.ir.symbol import Symbol

LARGEST = 5000  # terms of an expression: shared ones count each time, because JSON repeats them
SAFE = 2**53 - 1  # Number.MAX_SAFE_INTEGER of JavaScript


class PlainNames(SymbolNames):
    """Symbols have the names that messages show, made unique."""

    def name(self, s: Symbol) -> str:
        if s not in self.names:
            text, known = str(s), set(self.names.values())
            while text in known:
                text += "'"
            self.names[s] = text
        return self.names[s]

    def _short(self, dim: Any) -> Any:
        return dim


class PlainForm:
    """Writes kernels for one session. A tensor has the same id in all of them."""

    def __init__(self) -> None:
        self.names = PlainNames()

    def dims(self, shape: Sequence[AnyDim]) -> list[Any]:
        return [self.names.dim(d) for d in shape]

    def tensor(self, t: Tensor) -> dict[str, Any]:
        return {"id": t.uid, "type": t.dtype.name, "dims": self.dims(t.shape)}

    def kernel(self, k: Kernel) -> dict[str, Any]:
        return {
            "kind": type(k).__name__.lower(),
            "node": k.node,
            "inputs": [self.tensor(t) for t in k.inputs],
            "outputs": [self.tensor(t) for t in k.outputs],
            **self._own(k),
        }

    def _own(self, k: Kernel) -> dict[str, Any]:
        match k:
            case Map():
                return {"expression": self.expression(k.expr)}
            case Reduce():
                extents, epilogue = self.dims(k.extents), self.expression(k.epilogue)
                expression = self.expression(k.expr)
                return {"operation": k.op, "extents": extents, "expression": expression, "epilogue": epilogue}
            case Loops():
                return {"name": k.name}
            case Call():
                return self._call(k)
        return {}

    def _call(self, call: Call) -> dict[str, Any]:
        return {
            "routine": call.routine,
            "operands": [None if t is None else t.uid for t in call.args],
            "attributes": {name: self.plain(value) for name, value in call.attrs.items()},
            "strided": {str(n): self.view(v) for n, v in call.strided.items()},
            "order": call.order,
            "epilogue": self.expression(call.epilogue),
            "packed": sorted(call.packed),
        }

    def view(self, v: View) -> dict[str, Any]:
        return {"tensor": self.tensor(v.tensor), "offset": self.names.dim(v.offset), "strides": self.dims(v.strides)}

    def expression(self, e: Expr | None) -> Any:
        """[op, operand, …], null for none and for one of more than `LARGEST` terms."""
        return None if e is None or _terms(e, {}) > LARGEST else self._expression(e)

    def _expression(self, e: Expr) -> Any:
        operands = [self._expression(a) for a in e.args if a.op != "site"]
        match e.op:
            case "const":
                return ["const", number(e.value), e.dtype.name]
            case "dim":
                return ["dim", self.names.dim(e.value)]
            case "index" | "arg" | "var":
                return [e.op, e.value]
            case "at":
                return ["at", e.value.uid, *operands]
            case "cast" | "bitcast":
                return [e.op, e.dtype.name, *operands]
        return [e.op, *operands]

    def plain(self, value: Any) -> Any:
        """An attribute."""
        if isinstance(value, (list, tuple)):
            return [self.plain(x) for x in value]
        if isinstance(value, Dim):
            return self.names.dim(value)
        return number(value) if isinstance(value, (int, float)) else None if value is None else str(value)


def number(x: Any) -> Any:
    """The number; as text if JSON or a double cannot represent it."""
    if isinstance(x, float) and not isfinite(x):
        return "NaN" if x != x else "Infinity" if x > 0 else "-Infinity"
    return str(x) if isinstance(x, int) and abs(x) > SAFE else x


def _terms(e: Expr, known: dict[int, int]) -> int:
    if id(e) not in known:
        known[id(e)] = 1 + sum(_terms(a, known) for a in e.args)
    return known[id(e)]


def read_map(plain: Mapping[str, Any], source: Tensor) -> Map:
    """The map {"type", "dims", "expression"}, which reads one tensor. Errors: TypeError, ValueError, KeyError for what
    is none"""
    dims = plain["dims"]
    if not all(isinstance(n, int) and n >= 0 for n in dims):
        raise ValueError(f"a packed operand cannot have the dims {dims}")
    return Map(cast(_read(plain["expression"], source), BY_NAME[plain["type"]])).making(dims, BY_NAME[plain["type"]])


def _read(plain: Any, source: Tensor) -> Expr:
    """An expression over axes of the output (index), constants and elements of `source`."""
    op, *given = plain
    if op == "const":
        return const(given[0], BY_NAME[given[1]] if len(given) > 1 else I32)
    if op == "index":
        return index(given[0])
    if op == "at":
        if given[0] != source.uid:
            raise ValueError(f"tensor {given[0]} is not the operand, which is {source.uid}")
        return source.at(*[_read(a, source) for a in given[1:]])
    if op == "cast":
        return cast(_read(given[1], source), BY_NAME[given[0]])
    if op not in UNARY | BINARY | COMPARE | {"select", "guard"}:
        raise ValueError(f"a packed operand cannot use {op}")
    operands = [_read(a, source) for a in given]
    return rebuild(Expr(op, tuple(operands), operands[0].dtype), operands)

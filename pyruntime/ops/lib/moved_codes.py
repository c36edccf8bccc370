"""Codes that are only moved stay codes: QuantizeLinear of what was moved since DequantizeLinear.

Quantising an element needs no other, so it may come before what moves elements. With the scale s and the zero point
that gave a number a·s, it then gives the code back: (a·s)/s is within 2⁻²²·|a| of a, which is an integer of nine bits.
"""

from __future__ import annotations

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, I8, I32, U8, DType
from pyruntime.ir.expr import Expr, const
from pyruntime.ir.kernel import Alias, Map, Tensor

PLAIN = 1e-30, 1e30  # scales for which no product with a code overflows or loses bits
DEPTH = 32  # kernels between the two


def moved_codes(t: Tracer, x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType) -> Tensor | None:
    """The codes of x for one scale and zero point that are known, if x holds just such codes, dequantised and moved."""
    if dtype not in (I8, U8) or scale.dtype is not F32:
        return None
    wanted = _number(t, scale), 0 if zero is None else _number(t, zero)
    if wanted[0] is None or wanted[1] is None or not PLAIN[0] < wanted[0] < PLAIN[1]:
        return None
    return _Moved(t, wanted, dtype).tensor(x, DEPTH)


def _number(t: Tracer, v: Tensor) -> float | None:
    values = t.known(v) if v.shape in ((), (1,)) else None
    return values[0] if values and isinstance(values[0], (int, float)) else None


class _Moved:
    def __init__(self, t: Tracer, wanted: tuple[float | None, float | None], dtype: DType) -> None:
        self.t, self.wanted, self.dtype = t, wanted, dtype
        self.found: dict[int, Tensor | None] = {}  # what two kernels read is moved once

    def tensor(self, x: Tensor, depth: int) -> Tensor | None:
        if x.uid not in self.found:
            self.found[x.uid] = self._moved(x, depth)
        return self.found[x.uid]

    def _moved(self, x: Tensor, depth: int) -> Tensor | None:
        if isinstance(x.kernel, Alias):
            base = self.tensor(x.kernel.base, depth - 1) if depth else None
            return None if base is None else self.t.reshape(base, x.shape)
        e = self.expr(x.kernel.expr, depth) if isinstance(x.kernel, Map) else None
        if e is None:
            return None
        there = e.op == "at" and e.value.shape == x.shape
        own = there and all(c.op == "index" and c.value == n for n, c in enumerate(e.args))
        return e.value if own else self.t.add(Map(e), [(x.shape, self.dtype)])[0]

    def expr(self, e: Expr, depth: int) -> Expr | None:
        """The code of a real number."""
        if e.op == "at":
            source = self.tensor(e.value, depth - 1) if depth else None
            return None if source is None else source.at(*e.args)
        if e.op in ("guard", "select"):
            a, b = (self.expr(side, depth) for side in e.args[1:])
            return None if a is None or b is None else Expr(e.op, (e.args[0], a, b), self.dtype)
        if e.op == "const" and e.value == 0:
            return const(self.wanted[1], self.dtype)
        return self._dequantised(e)

    def _dequantised(self, e: Expr) -> Expr | None:
        if e.op != "mul" or e.args[0].op != "cast" or e.args[1].op != "at":
            return None
        code, zero, scale = e.args[0].args[0], const(0, I32), e.args[1].value
        if code.op == "sub":
            code, zero = code.args
        if code.op != "cast" or code.args[0].dtype is not self.dtype:
            return None
        taken = zero.value if zero.op == "const" else _number(self.t, zero.args[0].value)
        return code.args[0] if (_number(self.t, scale), taken) == self.wanted else None


__all__ = ["moved_codes"]

"""Moves of dequantised values, such as Transpose or Pad, done on their codes: DequantizeLinear -> moves ->
QuantizeLinear with the same scale and zero point becomes moves of the codes.

QuantizeLinear works element by element, so it may run before the moves. It then returns the code that DequantizeLinear
read, because with scale s, (a·s)/s is within 2⁻²²·|a| of a, and a is an integer of at most nine bits."""

from __future__ import annotations

from pyruntime.frontend.tracer import Tracer
from pyruntime.ir.dtype import F32, I8, I32, U8, DType
from pyruntime.ir.expr import Expr, const
from pyruntime.ir.kernel import Alias, Map, Tensor

SCALES = 1e-30, 1e30  # between these, no product with a code overflows or loses bits
MAX_DEPTH = 32  # kernels between DequantizeLinear and QuantizeLinear


def moved_codes(t: Tracer, x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType) -> Tensor | None:
    """The codes of x for a constant scale and zero point, if x holds only values that were dequantised with both and
    then moved; else None."""
    if dtype not in (I8, U8) or scale.dtype is not F32:
        return None
    scale_value, zero_value = _number(t, scale), 0 if zero is None else _number(t, zero)
    if scale_value is None or zero_value is None or not SCALES[0] < scale_value < SCALES[1]:
        return None
    return _CodesOf(t, (scale_value, zero_value), dtype).tensor(x, MAX_DEPTH)


def _number(t: Tracer, v: Tensor) -> float | None:
    values = t.known(v) if v.shape in ((), (1,)) else None
    return values[0] if values and isinstance(values[0], (int, float)) else None


class _CodesOf:
    def __init__(self, t: Tracer, scale_zero: tuple[float, float], dtype: DType) -> None:
        self.t, self.scale_zero, self.dtype = t, scale_zero, dtype
        self.codes: dict[int, Tensor | None] = {}  # memoised, so that a tensor with two readers is moved once

    def tensor(self, x: Tensor, depth: int) -> Tensor | None:
        if x.uid not in self.codes:
            self.codes[x.uid] = self._moved(x, depth)
        return self.codes[x.uid]

    def _moved(self, x: Tensor, depth: int) -> Tensor | None:
        if isinstance(x.kernel, Alias):
            base = self.tensor(x.kernel.base, depth - 1) if depth else None
            return None if base is None else self.t.reshape(base, x.shape)
        e = self.expr(x.kernel.expr, depth) if isinstance(x.kernel, Map) else None
        if e is None:
            return None
        same_shape = e.op == "at" and e.value.shape == x.shape
        identity = same_shape and all(c.op == "index" and c.value == n for n, c in enumerate(e.args))
        return e.value if identity else self.t.add(Map(e), [(x.shape, self.dtype)])[0]

    def expr(self, e: Expr, depth: int) -> Expr | None:
        """The code of a real number, or None."""
        if e.op == "at":
            source = self.tensor(e.value, depth - 1) if depth else None
            return None if source is None else source.at(*e.args)
        if e.op in ("guard", "select"):
            a, b = (self.expr(side, depth) for side in e.args[1:])
            return None if a is None or b is None else Expr(e.op, (e.args[0], a, b), self.dtype)
        if e.op == "const" and e.value == 0:
            return const(self.scale_zero[1], self.dtype)
        return self._dequantised(e)

    def _dequantised(self, e: Expr) -> Expr | None:
        if e.op != "mul" or e.args[0].op != "cast" or e.args[1].op != "at":
            return None
        code, zero, scale = e.args[0].args[0], const(0, I32), e.args[1].value
        if code.op == "sub":
            code, zero = code.args
        if code.op != "cast" or code.args[0].dtype is not self.dtype:
            return None
        zero_value = zero.value if zero.op == "const" else _number(self.t, zero.args[0].value)
        return code.args[0] if (_number(self.t, scale), zero_value) == self.scale_zero else None

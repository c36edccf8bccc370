"""Winograd's forms: transforms of input patches, kernels and sums of products, four tiles at a time.

Of a form F(step x step, 3x3), V = Bt d B for a patch d of side x side inputs, U = G g Gt for a kernel g, and the
outputs are At (sum over channels of U V) A.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..printer.assembler import Function
from .pack_panels import transpose4

# F(4x4)'s interpolation points are 0, +-A, +-B and infinity
A, B = 0.75, 1.5
SUM, PRODUCT = A * A + B * B, A * A * B * B


class Form:
    """step: outputs of a tile along an axis; side: inputs of its patch; g: rows of G."""

    step: int
    side: int
    g: list[list[float]]

    @property
    def points(self) -> int:
        return self.side * self.side

    @property
    def loads(self) -> int:
        """Vectors of a row that four adjacent tiles read."""
        return (4 * self.step + 5) // 4

    def kernel_transform(self) -> list[float]:
        """(points, 3, 3): U[p] = sum over (r, s) of this[p, r, s] * g[r, s]."""
        n = range(self.side)
        return [self.g[i][r] * self.g[j][s] for i in n for j in n for r in range(3) for s in range(3)]

    def columns(self, f: Function, v: Sequence[int]) -> list[int]:
        """Return the columns of the patches, `side` vectors with a lane for each tile, from `loads` vectors of a
        row."""
        raise NotImplementedError

    def forward(self, f: Function, d: Sequence[int], to: Sequence[int]) -> None:
        """to = Bt d, for `side` vectors. `to` are other locals than `d`."""
        raise NotImplementedError

    def backward(self, f: Function, m: Sequence[int], to: Sequence[int]) -> None:
        """to = At m: `step` vectors from `side`."""
        raise NotImplementedError

    def outputs(self, f: Function, to: Sequence[int]) -> None:
        """Convert `step` vectors with a lane for each tile to columns of a row, in place, after both passes."""
        raise NotImplementedError


def _scaled(f: Function, x: int, factor: float) -> Function:
    return f.emit(x).f32x4(factor).emit("f32x4.mul")


def _kernel_row(point: float, other: float) -> list[float]:
    scale = 1 / (2 * point * point * (point * point - other * other))
    return [scale, scale * point, scale * point * point]


class Floats(Form):
    """F(4x4, 3x3) in float32: 36 products for 16 outputs instead of 144."""

    step, side = 4, 6
    g = [
        [1 / PRODUCT, 0.0, 0.0],
        *[_kernel_row(p, q) for p, q in ((A, B), (-A, B), (B, A), (-B, A))],
        [0.0, 0.0, 1.0],
    ]

    def columns(self, f: Function, v: Sequence[int]) -> list[int]:
        """The last two vectors become the columns after the first four; `v` has one more local."""
        with f.scratch("v128", 2) as last:
            f.emit(v[1], v[2]).shuffle32(0, 4, 1, 5).set(last[0]).emit(v[3], v[4]).shuffle32(0, 4, 1, 5).set(last[1])
            f.emit(last[0], last[1]).shuffle32(0, 1, 4, 5).set(v[4])
            f.emit(last[0], last[1]).shuffle32(2, 3, 6, 7).set(v[5])
        transpose4(f, list(v[:4]))
        return list(v)

    def forward(self, f: Function, d: Sequence[int], to: Sequence[int]) -> None:
        for n in (0, 1):  # the points 0 and infinity
            _scaled(f, d[n], PRODUCT)
            _scaled(f, d[n + 2], SUM).emit("f32x4.sub", d[n + 4], "f32x4.add").set(to[5 * n])
        with f.scratch("v128", 2) as (even, odd):
            for n, point, other in ((1, A, B), (3, B, A)):
                f.emit(d[4])
                _scaled(f, d[2], other * other).emit("f32x4.sub").set(even).emit(d[3])
                _scaled(f, d[1], other * other).emit("f32x4.sub").f32x4(point).emit("f32x4.mul").set(odd)
                f.emit(even, odd, "f32x4.add").set(to[n]).emit(even, odd, "f32x4.sub").set(to[n + 1])

    def backward(self, f: Function, m: Sequence[int], to: Sequence[int]) -> None:
        with f.scratch("v128", 4) as (even, odd, far, wide):
            f.emit(m[1], m[2], "f32x4.add").set(even).emit(m[1], m[2], "f32x4.sub").set(odd)
            f.emit(m[3], m[4], "f32x4.add").set(far).emit(m[3], m[4], "f32x4.sub").set(wide)
            f.emit(m[0], even, "f32x4.add", far, "f32x4.add").set(to[0])
            for n, x, y in ((1, odd, wide), (2, even, far), (3, odd, wide)):
                _scaled(f, x, A**n)
                _scaled(f, y, B**n).emit("f32x4.add")
                f.set(to[n])
            f.emit(to[3], m[5], "f32x4.add").set(to[3])

    def outputs(self, f: Function, to: Sequence[int]) -> None:
        transpose4(f, list(to))


class Integers(Form):
    """F(2x2, 3x3) of pairs of int16, exactly: 16 products for 4 outputs instead of 36.

    G has no halves: the rows of the points 1 and -1 are twice those of the literature. At compensates with twice the
    other points, and gives four times the outputs. An element of V is at most 4, one of U 9 times the largest code, and
    four times an output must fit int32; intermediate values may wrap.
    """

    step, side = 2, 4
    g = [[1, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 1]]

    def columns(self, f: Function, v: Sequence[int]) -> list[int]:
        """`v` has one more local."""
        a, b, c, odd = v
        f.emit(a, b).shuffle32(1, 3, 5, 7).set(odd).emit(a, b).shuffle32(0, 2, 4, 6).set(a)
        f.emit(a, c).shuffle32(1, 2, 3, 4).set(b).emit(odd, c).shuffle32(1, 2, 3, 5).set(c)
        return [a, odd, b, c]

    def forward(self, f: Function, d: Sequence[int], to: Sequence[int]) -> None:
        for n, (x, op, y) in enumerate(((0, "sub", 2), (1, "add", 2), (2, "sub", 1), (1, "sub", 3))):
            f.emit(d[x], d[y], f"i16x8.{op}").set(to[n])

    def backward(self, f: Function, m: Sequence[int], to: Sequence[int]) -> None:
        f.emit(m[0]).i32(1).emit("i32x4.shl", m[1], "i32x4.add", m[2], "i32x4.add").set(to[0])
        f.emit(m[1], m[2], "i32x4.sub", m[3]).i32(1).emit("i32x4.shl", "i32x4.sub").set(to[1])

    def outputs(self, f: Function, to: Sequence[int]) -> None:
        for x in to:
            f.emit(x).i32(2).emit("i32x4.shr_s").set(x)
        with f.scratch("v128", 1) as (high,):
            f.emit(to[0], to[1]).shuffle32(2, 6, 3, 7).set(high).emit(to[0], to[1]).shuffle32(0, 4, 1, 5).set(to[0])
            f.emit(high).set(to[1])


FLOATS, INTEGERS = Floats(), Integers()

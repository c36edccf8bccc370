"""Products whose rows may be rounded to 8 bits (MatMulNBits with accuracy_level 4), with their results in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from kit.low_bits import Array, packed

N = 40
FEW = 4  # rows that are not rounded


@dataclass(frozen=True)
class Case:
    """zeros: "packed", "real" (of the scales' type) or none; more: nodes that compute y from p, the product; batch:
    axes before the rows"""

    bits: int = 4
    half: bool = False
    zeros: str = ""
    block: int = 32
    K: int = 256
    more: str = "y = Identity (p)"
    batch: tuple[int, ...] = ()

    def build(self) -> tuple[bytes, Array]:
        """The model, and its dequantised weights [N, K]."""
        random = np.random.default_rng(3)
        real = np.float16 if self.half else np.float32
        blocks = -(-self.K // self.block)
        codes = random.integers(0, 1 << self.bits, (N, blocks * self.block))
        scales = (random.random((N, blocks)) / 64 + 0.01).astype(real)
        zeros = (
            random.integers(0, 1 << self.bits, scales.shape)
            if self.zeros
            else np.full_like(codes[:, :blocks], 1 << (self.bits - 1))
        )
        weights = {
            "s": scales,
            "b": packed(codes.reshape(N, blocks, self.block), self.bits),
            "c": np.arange(N).astype(real),
        }
        if self.zeros:
            weights["z"] = zeros.astype(real) if self.zeros == "real" else packed(zeros, self.bits)
        kind = "float16" if self.half else "float"
        z = ", z" if self.zeros else ""
        sizes = f"K = {self.K}, N = {N}, bits = {self.bits}, block_size = {self.block}, accuracy_level = 4"
        axes = ", ".join([*map(str, self.batch), "m"])
        model = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
            g ({kind}[{axes}, {self.K}] x) => ({kind}[{axes}, {N}] y) {{
              p = com.microsoft.MatMulNBits <{sizes}> (x, b, s{z})
              {self.more}
            }}"""
        )
        model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
        at = np.arange(self.K) // self.block
        return model.SerializeToString(), (codes[:, : self.K] - zeros[:, at]) * scales.astype(np.float64)[:, at]

    def feed(self, rows: int) -> Array:
        random = np.random.default_rng(rows)
        x = random.standard_normal((*self.batch, rows, self.K))
        x[..., 0, : self.block] = 0  # a block of zeros
        return x.astype(np.float16 if self.half else np.float32)

    def check(self, got: Array, x: Array, weights: Array) -> None:
        rounds = np.prod(x.shape[:-1]) > FEW
        want = (self.rounded(x) if rounds else x.astype(np.float64)) @ weights.T
        want = finished(self.more, want)
        np.testing.assert_allclose(got, want, rtol=0, atol=(1e-3 if self.half else 1e-5) * np.abs(want).max())

    def rounded(self, x: Array) -> Array:
        """x with each block rounded to multiples of its largest magnitude / 127. Scales are computed in float32, as the
        kernels do, so that the same numbers are halfway between two."""
        *rows, k = x.shape
        blocks = np.pad(x.astype(np.float32), [(0, 0)] * len(rows) + [(0, -k % self.block)]).reshape(
            *rows, -1, self.block
        )
        steps = np.abs(blocks).max(-1, keepdims=True) * np.float32(1 / 127)
        codes = np.rint(np.divide(blocks, steps, where=steps > 0, out=np.zeros_like(blocks)))
        return (codes.astype(np.float64) * steps).reshape(*rows, -1)[..., :k]


def finished(more: str, product: Array) -> Array:
    """What the nodes after the product compute."""
    if "Relu" in more:
        return np.maximum(product + np.arange(N), 0)
    return product


CASES = [
    Case(),
    Case(zeros="packed"),
    Case(zeros="real", block=128),
    Case(half=True, zeros="packed", block=16),
    Case(bits=2, zeros="packed"),
    Case(bits=2, block=64),
    Case(bits=8),
    Case(bits=8, zeros="packed", half=True),
    Case(K=100),  # its last block is not full
    Case(K=31, block=16, zeros="packed"),
    Case(more="q = Add (p, c)  y = Relu (q)"),
    Case(batch=(3,)),
]

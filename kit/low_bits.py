"""Products and lookups by weights of few bits, with their float64 results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

K, N = 256, 512
Array = np.ndarray[Any, Any]


def packed(codes: Array, bits: int) -> Array:
    """Codes along the last axis in bytes, lowest bits first."""
    each = 8 // bits
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)])
    parts = codes.reshape(*codes.shape[:-1], -1, each)
    return sum(parts[..., n] << (bits * n) for n in range(each)).astype(np.uint8)


@dataclass(frozen=True)
class Case:
    """op: MatMulNBits or GatherBlockQuantized; zeros: "packed", "real" (of the scales' type) or none; order: of g_idx,
    "full" if it fills its blocks, "any", or none; steps: of the scales in float32: "half" if all are half floats,
    "bfloat" if they have the bits of bfloat16 and many are below the half floats; most: bytes of a weight on the GPU,
    with scales and zero points."""

    bits: int
    half: bool
    most: float
    zeros: str = ""
    order: str = ""
    op: str = "MatMulNBits"
    block: int = 32
    steps: str = ""

    def build(self) -> tuple[bytes, Array]:
        """The model, and its dequantised weights [N, K]."""
        random = np.random.default_rng(0)
        real = np.float16 if self.half else np.float32
        blocks = K // self.block
        codes = random.integers(0, 1 << self.bits, (N, K))
        scales = (random.random((N, blocks)) / 64 + 0.01).astype(real)
        if self.steps == "half":
            scales = scales.astype(np.float16).astype(real)
        elif self.steps == "bfloat":
            small = np.ldexp(scales, random.integers(-20, 1, scales.shape)).view(np.uint32)
            scales = (small & 0xFFFF0000).view(real)
        zeros = (
            random.integers(0, 1 << self.bits, scales.shape)
            if self.zeros
            else np.full_like(codes[:, :blocks], 1 << (self.bits - 1))
        )
        block = np.arange(K) // self.block
        if self.order:
            block = random.permutation(block) if self.order == "full" else random.integers(0, blocks, K)
        weights = {"s": scales, "b": packed(codes.reshape(N, blocks, self.block), self.bits)}
        if self.zeros:
            weights["z"] = zeros.astype(real) if self.zeros == "real" else packed(zeros, self.bits)
        if self.order:
            weights["g"] = block.astype(np.int32)
        return self._model(weights), (codes - zeros[:, block]) * scales.astype(np.float64)[:, block]

    def _model(self, weights: dict[str, Array]) -> bytes:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.float16 if self.half else np.float32))
        z, g = ("z" if self.zeros else ""), ("g" if self.order else "")
        if self.op == "MatMulNBits":
            sizes = {"K": K, "N": N, "bits": self.bits, "block_size": self.block}
            node = helper.make_node(self.op, ["x", "b", "s", z, g], ["y"], domain="com.microsoft", **sizes)
            x = helper.make_tensor_value_info("x", kind, ["m", K])
        else:
            weights["b"] = weights["b"].reshape(N, -1)
            sizes = {"bits": self.bits, "block_size": self.block}
            node = helper.make_node(
                self.op, ["b", "x", "s", *filter(None, [z])], ["y"], domain="com.microsoft", **sizes
            )
            x = helper.make_tensor_value_info("x", onnx.TensorProto.INT32, ["m"])
        y = helper.make_tensor_value_info("y", kind, ["m", None])
        graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(w, n) for n, w in weights.items()])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

    def feed(self, rows: int) -> Array:
        random = np.random.default_rng(rows)
        if self.op != "MatMulNBits":
            return random.integers(0, N, rows).astype(np.int32)
        return random.standard_normal((rows, K)).astype(np.float16 if self.half else np.float32)

    def check(self, got: Array, x: Array, weights: Array) -> None:
        want = weights[x] if self.op != "MatMulNBits" else x.astype(np.float64) @ weights.T
        np.testing.assert_allclose(got, want, rtol=0, atol=(1e-3 if self.half else 1e-5) * np.abs(want).max())


CASES = [
    Case(4, True, 0.5625),
    Case(4, True, 0.58, "packed"),
    Case(4, False, 0.625),
    Case(4, False, 0.5625, steps="half"),
    Case(4, False, 0.5625, steps="bfloat"),
    Case(4, False, 0.579, "packed", steps="half"),
    Case(4, False, 0.54, "packed", block=64, steps="bfloat"),
    Case(4, False, 0.52, "packed", block=128, steps="half"),
    Case(4, False, 0.69, "real"),
    Case(4, False, 0.625, "real", steps="half"),
    Case(4, False, 0.64, order="full"),
    Case(4, True, 0.58, "packed", order="any"),
    Case(2, True, 0.3125),
    Case(2, False, 0.39, "packed"),
    Case(8, True, 1.0625),
    Case(4, True, 0.5625, op="GatherBlockQuantized"),
    Case(4, False, 0.645, "packed", op="GatherBlockQuantized"),
    Case(4, False, 0.58, "packed", op="GatherBlockQuantized", steps="half"),
    Case(2, True, 0.3125, op="GatherBlockQuantized"),
]

# for kernels of few rows
ROWS = [
    Case(4, False, 0.625),
    Case(4, False, 0.579, "packed", steps="half"),
    Case(2, False, 0.39, "packed"),
    Case(8, False, 1.125, block=64),
]

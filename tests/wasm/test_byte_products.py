"""Products of codes by 8-bit dot products, against sums in float64, which are exact.

wasmtime's dot products are not exact over the full ranges on all processors: the instruction is written as others that
are; e2e/test_dots.py runs it where a browser has it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from pyruntime import InferenceSession
from pyruntime.providers.wasm import provider
from pyruntime.providers.wasm.native.environment import NativeThreads
from pyruntime.providers.wasm.native.pages import VARIABLE, native_code
from pyruntime.providers.wasm.printer.assembler import Function
from pyruntime.providers.wasm.schedules.arithmetic import Arithmetic
from tests.wasm.native import usable
from tests.wasm.test_integer_conv import I8, SHAPES, U8, codes, float_conv, scales
from tests.wasm.test_routines import model, node

RNG = np.random.default_rng(5)
KINDS = ((U8, U8), (U8, I8), (I8, I8))
SOME = [s for s in SHAPES[1:27:5] + SHAPES[27:] if s[2].get("group", 1) != s[0][1]]  # depthwise ones are floats


def exact(sign: str) -> Any:
    """`multiply_add` with the dot product of signed by signed ("s") or unsigned ("u") bytes in other instructions."""

    def multiply_add(self: Arithmetic, f: Function, total: int, x: int, y: int) -> None:
        first, second = (x, y) if self is Arithmetic.INT8 else (y, x)
        with f.scratch("v128", 2) as halves:
            for half, part in zip(halves, ("low", "high"), strict=True):
                f.emit(first, f"i16x8.extend_{part}_i8x16_s", second, f"i16x8.extend_{part}_i8x16_{sign}")
                f.emit("i32x4.dot_i16x8_s").set(half)
            f.emit(*halves).shuffle32(0, 2, 4, 6).emit(*halves).shuffle32(1, 3, 5, 7)
        f.emit("i32x4.add", total, "i32x4.add").set(total)

    return multiply_add


@pytest.fixture(params=["unsigned", "signed", "code", "declined code"])
def dots(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Sessions have the 8-bit dot products of such a host; at the end, that they were used. "code": machine code;
    "declined code": such that leaves all work to WebAssembly"""
    if "code" in request.param:
        with with_code(monkeypatch, request.param):
            yield "unsigned"
        return
    own, real, used = type(provider).code_writer, Arithmetic.multiply_add, []
    emulated = exact(request.param[0])

    def multiply_add(self: Arithmetic, *args: Any) -> None:
        used.append(self.codes == 4)
        (emulated if self.codes == 4 else real)(self, *args)

    def code_writer(self: Any, **target: Any) -> Any:
        return own(self, **target | {"native": (), "dots": request.param})

    with (
        patch.object(type(provider), "code_writer", code_writer),
        patch.object(Arithmetic, "multiply_add", multiply_add),
    ):
        yield request.param
    assert any(used)


@contextmanager
def with_code(monkeypatch: pytest.MonkeyPatch, how: str) -> Iterator[None]:
    """See `dots`."""
    if "block_int8" not in (usable() and native_code("avx512").functions):
        pytest.skip("the processor has no AVX-512 VNNI")
    real, used = NativeThreads._import, set()

    def function(self: NativeThreads, name: str, *args: Any) -> Any:
        used.add(name)
        code = self.code
        self.code = None if how == "declined code" else code
        try:
            return real(self, name, *args)
        finally:
            self.code = code

    monkeypatch.setenv(VARIABLE, "avx512")
    monkeypatch.setattr(NativeThreads, "_import", function)
    yield
    assert used & {"block_int8", "block_int8_rows"}


def test_conv_integer(dots: str) -> None:
    """The full ranges, zero points at both ends and none; padding is the zero point. Of uint8 weights, one for all, one
    that makes them signed bytes, or one a filter."""
    for n, (x, w, attrs) in enumerate(SOME * 2):
        kinds = KINDS[n % 3]
        ends = np.iinfo(kinds[0])
        zero = (ends.min, ends.max, 0)[n // 3 % 3]
        middle = (np.array(128), np.array(7), RNG.integers(0, 256, w[0]))[n % 5 % 3] if kinds[1] is U8 else np.array(0)
        feeds = {"x": codes(kinds[0], *x)}
        weights = {"w": codes(kinds[1], *w), "xz": np.array(zero, kinds[0]), "wz": middle.astype(kinds[1])}
        data = model([node("ConvInteger", "x w xz wz", "y", **attrs)], feeds, weights, symbolic=n % 2 == 1)
        (got,) = InferenceSession(data).run(None, feeds)
        moved = (
            feeds["x"].astype(np.float64) - zero,
            weights["w"] - middle.reshape(-1, *[1] * (len(w) - 1)).astype(np.float64),
        )
        (want,) = ReferenceEvaluator(float_conv(attrs)).run(None, dict(zip("xw", moved, strict=True)))
        np.testing.assert_array_equal(got, want, str((x, w, attrs)))


def test_matmul_integer(dots: str) -> None:
    """Rows around a tile of 6, columns around a panel of 8, k around a word of 4; a zero point from a feed, too."""
    sizes = [(1, 9), (5, 8), (6, 7), (7, 9)]
    for (m, n), k, kinds in itertools.product(sizes, (3, 4, 5, 64), KINDS):
        a, b = codes(kinds[0], 2, m, k), codes(kinds[1], k, n)
        middle = (np.array(128), np.array(7), RNG.integers(0, 256, n))[(m + k) % 3] if kinds[1] is U8 else np.array(0)
        zeros = {"az": np.array(np.iinfo(kinds[0]).max - k, kinds[0]), "bz": middle.astype(kinds[1])}
        feeds = {"a": a, **({"az": zeros["az"]} if m == 5 else {})}
        weights = {"b": b, **{name: zero for name, zero in zeros.items() if name not in feeds}}
        (got,) = InferenceSession(model([node("MatMulInteger", "a b az bz", "y")], feeds, weights, k == 4)).run(
            None, feeds
        )
        want = (a.astype(np.int64) - int(zeros["az"])) @ (b.astype(np.int64) - middle)
        np.testing.assert_array_equal(got, want, str((m, n, k)))


def test_real_numbers_and_codes_of_a_convolution_of_dequantised_codes(dots: str) -> None:
    """The bias, a clip and the codes are its epilogue; exact but for the one rounding of the scale."""
    for zero in (0, 131):
        feeds = {"x": codes(U8, 2, 5, 6, 9)}
        w, bias = codes(I8, 7, 5, 3, 3), RNG.uniform(-1, 1, 7).astype(np.float32)
        weights = {"xs": scales(), "xz": np.array(zero, U8), "w": w, "ws": scales(7), "wz": np.zeros(7, I8), "b": bias}
        weights |= {"ys": np.float32(0.2), "yz": np.array(120, U8)}
        weights = {name: np.asarray(value) for name, value in weights.items()}
        nodes = [node("DequantizeLinear", "x xs xz", "xf"), node("DequantizeLinear", "w ws wz", "wf", axis=0)]
        nodes += [node("Conv", "xf wf b", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "r")]
        nodes += [node("QuantizeLinear", "r ys yz", "y")]
        (got,) = InferenceSession(model(nodes, feeds, weights, False)).run(None, feeds)
        sums = {"x": feeds["x"].astype(np.float64) - zero, "w": w.astype(np.float64)}
        (want,) = ReferenceEvaluator(float_conv({"pads": [1, 1, 1, 1]})).run(None, sums)
        real = want * float(weights["xs"]) * weights["ws"].astype(np.float64).reshape(7, 1, 1) + bias.reshape(7, 1, 1)
        want = np.clip(np.maximum(real, 0) / np.float32(0.2) + 120, 0, 255)
        assert np.abs(got - want).max() < 0.5001

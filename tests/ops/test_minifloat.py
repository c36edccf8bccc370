"""float8, float6, float4: every code decoded, values around every rounding border encoded, against ml_dtypes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from pyruntime.ir import dtype as dt
from pyruntime.ir import reference
from pyruntime.ir.expr import Expr, MixedTypes, cast, const
from pyruntime.ops.lib.minifloat import FORMATS, decode, encode
from tests.ops.compare import by_onnx
from tests.ops.node import check_node

TYPES: dict[dt.DType, Any] = {
    dt.F8E4M3FN: ml_dtypes.float8_e4m3fn, dt.F8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz, dt.F8E5M2: ml_dtypes.float8_e5m2,
    dt.F8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz, dt.F4E2M1: ml_dtypes.float4_e2m1fn, dt.F6E2M3: ml_dtypes.float6_e2m3fn,
    dt.F6E3M2: ml_dtypes.float6_e3m2fn, dt.F8E8M0: ml_dtypes.float8_e8m0fnu,
}  # fmt: skip


def value(e: Any) -> Any:
    return reference.value(e, {}, {})


def decoded(d: dt.DType) -> np.ndarray:
    codes = np.arange(1 << (FORMATS[d].bits if d in FORMATS else 8), dtype=np.uint8)
    return codes.view(TYPES[d]).astype(np.float32)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_decode(d: dt.DType) -> None:
    want = decoded(d)
    got = np.array([value(decode(const(code, dt.U8), d)) for code in range(len(want))], np.float32)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


def borders(d: dt.DType) -> np.ndarray:
    """Each value, the middle of each pair, its neighbours, and values out of range."""
    finite = np.sort(decoded(d)[np.isfinite(decoded(d))])
    with np.errstate(over="ignore"):
        middle = finite[1:] / 2 + finite[:-1] / 2
        beyond = finite[-1] * np.float32([1.02, 1.03, 1.04, 1.0625, 1.1, 1.125, 1.2, 1.25, 1.3, 2])
    sides = [np.nextafter(middle, np.float32(s)) for s in (np.inf, -np.inf)]
    specials = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 1e-30, 1e9])
    return np.concatenate([finite, middle, *sides, specials, beyond]).astype(np.float32)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("d", FORMATS, ids=str)
def test_encode(d: dt.DType, saturate: bool) -> None:
    x = borders(d)
    got = np.array([value(encode(const(float(v)), d, saturate)) for v in x], np.uint8)
    with np.errstate(all="ignore"):
        want = onnx.numpy_helper.saturate_cast(x, np.dtype(TYPES[d])) if saturate else x.astype(TYPES[d])
    np.testing.assert_array_equal(got, want.view(np.uint8))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_exponents(mode: str) -> None:
    x = borders(dt.F8E8M0)
    x = np.abs(x[np.isfinite(x)])
    got = np.array([value(encode(const(float(v)), dt.F8E8M0, True, mode)) for v in x], np.uint8)
    np.testing.assert_array_equal(got, onnx.numpy_helper.to_float8e8m0(x, True, mode).view(np.uint8))


SCALES = np.array([0.25, 8.0, 1.0]).astype(ml_dtypes.float8_e8m0fnu)


@pytest.mark.parametrize("scale", [SCALES, SCALES[1]], ids=["each", "one"])
def test_scales_that_are_exponents(scale: Any) -> None:
    x = np.float32([[-162, 10, 33.3], [0.1, 7, -9]])
    check_node("QuantizeLinear", [x, scale, np.zeros(np.shape(scale), np.int8)], 24, by_onnx, axis=1)
    codes = np.array([[-100, 10, 33], [0, 7, -9]], np.int8)
    check_node("DequantizeLinear", [codes, scale], 24, by_onnx, axis=1, output_dtype=onnx.TensorProto.FLOAT)


@pytest.mark.parametrize("d", TYPES, ids=str)
def test_codes_are_no_numbers(d: dt.DType) -> None:
    for one, other in ((d, dt.F32), (dt.F32, d), (d, dt.I32)):
        with pytest.raises(MixedTypes):
            cast(Expr("at", (), one), other)

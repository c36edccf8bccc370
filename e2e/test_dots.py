"""Products of bytes over their full ranges in a browser: by 8-bit dot products where its processor has exact ones, else
by pairs of int16 (docs/design/quantisation.md#8-bit-dot-products)."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from kit.chromium import Engine
from kit.small_models import model

NODES = [
    helper.make_node("ConvInteger", ["x", "w", "z", "v"], ["conv"], pads=[1, 1, 1, 1]),
    helper.make_node("MatMulInteger", ["x", "m", "z", "v"], ["product"]),
]


def test_products_of_bytes(engine: Engine) -> None:
    """All ends meet all ends: u8 and s8 activations with a zero point that pads, s8 weights and u8 ones with one."""
    rng = np.random.default_rng(3)
    for kind, code, v in ((np.uint8, TensorProto.UINT8, np.int8(0)), (np.int8, TensorProto.INT8, np.uint8(7))):
        ends, low = np.iinfo(kind), np.iinfo(v.dtype).min
        x = rng.choice(np.array([ends.min, ends.max, ends.max - 100], kind), (1, 5, 7, 9))
        w, m = (rng.choice(np.array([low, low + 255, low + 9], v.dtype), shape) for shape in ((6, 5, 3, 3), (9, 11)))
        zero = ends.max - 3
        made = model(
            NODES,
            [("x", code, [1, 5, "h", 9])],
            [(name, TensorProto.INT32, None) for name in ("conv", "product")],
            {"w": w, "m": m, "z": np.array(zero, kind), "v": np.asarray(v)},
        )
        session = engine.open(made.SerializeToString())
        conv, product = session.run(None, {"x": x})
        session.release()
        moved = x.astype(np.int64) - zero
        np.testing.assert_array_equal(product, moved @ (m.astype(np.int64) - v))
        around = np.pad(moved, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
        np.testing.assert_array_equal(conv, np.einsum("nchwrs,mcrs->nmhw", windows, w.astype(np.int64) - v))

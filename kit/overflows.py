"""Models of half floats whose results fit half floats although values on the way do not, as exporters write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

HALF = onnx.TensorProto.FLOAT16
TWO = "two = Constant <value_float = 2.0> () "
EPS = "eps = Constant <value_float = 0.00001> () "
LN = "m = ReduceMean (x, ax) d = Sub (x, m) "
VARIANCE = LN + "p = Pow (d, two) v = ReduceMean (p, ax) e = Add (v, eps) s = Sqrt (e) "
SQUARES = "p = Pow (x, two) v = ReduceMean (p, ax) e = Add (v, eps) "
AXIS = "ax = Constant <value_ints = [-1]> () "
KEYS = "t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (x, t) "
SCALE = "c = Constant <value_float = 0.125> () "
HEADS = (1, 2, 16, 64)
LONG = (1, 1, 2, 64)


@dataclass(frozen=True)
class Case:
    """nodes: in ONNX's text form, from x and more inputs to y; dims: of x; largest: magnitude of its numbers; mean: of
    them, as a share of `largest`; more: name, dims and magnitude of more inputs."""

    name: str
    nodes: str
    dims: tuple[int, ...] = (4, 512)
    largest: float = 2000.0
    mean: float = 0.0
    more: tuple[tuple[str, tuple[int, ...], float], ...] = ()

    def model(self, half: bool) -> bytes:
        """The same model of float32 or of half floats."""
        inputs = ", ".join(f"float{list(dims)} {name}" for name, dims, _ in (("x", self.dims, 0.0), *self.more))
        opsets = '"" : 23, "com.microsoft" : 1'
        made = onnx.parser.parse_model(
            f"<ir_version: 10, opset_import: [{opsets}]> g ({inputs}) => (float y) {{ {self.nodes} }}"
        )
        made.graph.output[0].type.tensor_type.ClearField("shape")
        return (_in_halves(made) if half else made).SerializeToString()

    def feeds(self) -> dict[str, np.ndarray[Any, Any]]:
        """Half floats."""
        random = np.random.default_rng(0)
        x = self.largest * (self.mean + (1 - self.mean) * random.uniform(-1, 1, self.dims))
        more = {name: most * random.uniform(-1, 1, dims) for name, dims, most in self.more}
        return {name: value.astype(np.float16) for name, value in {"x": x, **more}.items()}

    def check(self, got: np.ndarray[Any, Any]) -> None:
        """Compare a result of half floats with onnxruntime's of float32."""
        peer = onnxruntime.InferenceSession(self.model(half=False), providers=["CPUExecutionProvider"])
        (want,) = peer.run(None, {name: x.astype(np.float32) for name, x in self.feeds().items()})
        assert np.isfinite(want.astype(np.float16)).all() and got.dtype == np.float16
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def _in_halves(made: onnx.ModelProto) -> onnx.ModelProto:
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = HALF
    for node in made.graph.node:
        for a in node.attribute if node.op_type == "Constant" else ():
            if a.name == "value_float":
                a.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(np.float16(a.f))))
    return made


def _attention(nodes: str, more: tuple[tuple[str, tuple[int, ...], float], ...] = ()) -> dict[str, Any]:
    """Queries x and keys whose products exceed 65,504, as those of models without scaled scores; values v."""
    return {
        "nodes": nodes,
        "dims": HEADS,
        "largest": 150.0,
        "more": (("k", (1, 2, 40, 64), 150.0), ("v", (1, 2, 40, 64), 1.0), *more),
    }


def _long(nodes: str) -> dict[str, Any]:
    """The same with 8,192 keys."""
    keys = (1, 1, 8192, 64)
    return {"nodes": nodes, "dims": LONG, "largest": 150.0, "more": (("k", keys, 150.0), ("v", keys, 1.0))}


ONES = (("g", (512,), 1.0),)
GELU = "b = Constant <value_float = 0.5> () one = Constant <value_float = 1.0> () h = Mul (x, b) "
TANH = "k = Mul (r, c) a = Add (x, k) z = Mul (a, f) t = Tanh (z) u = Add (t, one) y = Mul (h, u)"
CUBE = "c = Constant <value_float = 0.044715> () f = Constant <value_float = 0.7978845> () "
SOFTMAX = "p = Softmax <axis = -1> (s) y = MatMul (p, v)"
COUNT = "n = Constant <value_float = 64.0> () "

CASES = [
    # normalisations as operators
    Case("LayerNormalization", "y = LayerNormalization <axis = -1> (x, g)", more=ONES),
    Case(
        "LayerNormalization of near numbers",
        "y = LayerNormalization <axis = -1> (x, g)",
        largest=60000,
        mean=0.9,
        more=ONES,
    ),
    Case("RMSNormalization", "y = RMSNormalization <axis = -1> (x, g)", more=ONES),
    Case("SimplifiedLayerNormalization", "y = SimplifiedLayerNormalization <axis = -1> (x, g)", more=ONES),
    Case(
        "SkipSimplifiedLayerNormalization",
        "y = com.microsoft.SkipSimplifiedLayerNormalization (x, r, g)",
        dims=(1, 4, 512),
        more=(("r", (1, 4, 512), 2000.0), *ONES),
    ),
    Case("InstanceNormalization", "y = InstanceNormalization (x, g, g)", dims=(1, 4, 512), more=(("g", (4,), 1.0),)),
    Case(
        "GroupNormalization",
        "y = GroupNormalization <num_groups = 2> (x, g, g)",
        dims=(1, 4, 512),
        more=(("g", (4,), 1.0),),
    ),
    Case("MeanVarianceNormalization", "y = MeanVarianceNormalization <axes = [1]> (x)"),
    Case("LpNormalization", "y = LpNormalization <axis = -1, p = 2> (x)"),
    # normalisations that are written out
    Case("mean, Pow, Sqrt, Div", TWO + EPS + AXIS + VARIANCE + "y = Div (d, s)"),
    Case(
        "the same with a scale", TWO + EPS + AXIS + VARIANCE + "q = Div (d, s) w = Mul (q, g) y = Add (w, g)", more=ONES
    ),
    Case(
        "the same by Mul",
        EPS + AXIS + LN + "p = Mul (d, d) v = ReduceMean (p, ax) e = Add (v, eps) s = Sqrt (e) y = Div (d, s)",
    ),
    Case("the same far from 0", TWO + EPS + AXIS + VARIANCE + "y = Div (d, s)", largest=60000, mean=0.4),
    Case(
        "the same by E[x²] - E[x]²",
        EPS + AXIS + "m = ReduceMean (x, ax) p = Mul (x, x) v = ReduceMean (p, ax) w = Mul (m, m) "
        "u = Sub (v, w) e = Add (u, eps) s = Sqrt (e) d = Sub (x, m) y = Div (d, s)",
    ),
    Case("Pow, mean, Sqrt, Div", TWO + EPS + AXIS + SQUARES + "s = Sqrt (e) y = Div (x, s)"),
    Case(
        "Pow, mean, Sqrt, Reciprocal, Mul",
        TWO + EPS + AXIS + SQUARES + "s = Sqrt (e) r = Reciprocal (s) q = Mul (x, r) y = Mul (q, g)",
        more=ONES,
    ),
    Case(
        "Pow, mean, Pow -0.5",
        "h = Constant <value_float = -0.5> () " + TWO + EPS + AXIS + SQUARES + "r = Pow (e, h) y = Mul (x, r)",
    ),
    Case(
        "squares with two readers",
        TWO + EPS + AXIS + SQUARES + "s = Sqrt (e) q = Div (x, s) t = ReduceMax (p, ax) u = Sqrt (t) y = Div (q, u)",
    ),
    Case(
        "a norm of a sum of tensors",
        TWO
        + EPS
        + AXIS
        + "z = Add (x, x) p = Pow (z, two) v = ReduceMean (p, ax) e = Add (v, eps) s = Sqrt (e) y = Div (z, s)",
        largest=30000,
    ),
    Case(
        "a norm after a product",
        TWO
        + EPS
        + AXIS
        + "z = MatMul (x, w) p = Pow (z, two) v = ReduceMean (p, ax) e = Add (v, eps) s = Sqrt (e) y = Div (z, s)",
        more=(("w", (512, 64), 0.1),),
    ),
    Case("ReduceL2", AXIS + "s = ReduceL2 (x, ax) y = Div (x, s)", largest=60000),
    Case("ReduceSumSquare", AXIS + "s = ReduceSumSquare (x, ax) q = Sqrt (s) y = Div (x, q)"),
    Case(
        "cosines",
        AXIS
        + "p = Mul (x, z) d = ReduceSum (p, ax) a = ReduceL2 (x, ax) b = ReduceL2 (z, ax) "
        + "c = Mul (a, b) y = Div (d, c)",
        more=(("z", (4, 512), 2000.0),),
    ),
    Case("deviations", TWO + EPS + AXIS + LN + "p = Pow (d, two) v = ReduceMean (p, ax) y = Sqrt (v)"),
    Case(
        "ReduceL2 and the root of the count",
        AXIS + "c = Constant <value_float = 0.044194174> () s = ReduceL2 (x, ax) r = Mul (s, c) y = Div (x, r)",
    ),
    Case(
        "variance by ReduceSum",
        AXIS
        + EPS
        + "n = Constant <value_float = 512.0> () t = ReduceSum (x, ax) m = Div (t, n) d = Sub (x, m) p = Mul (d, d) "
        + "u = ReduceSum (p, ax) v = Div (u, n) e = Add (v, eps) s = Sqrt (e) y = Div (d, s)",
    ),
    Case(
        "weights over the deviation",
        TWO + EPS + AXIS + VARIANCE + "r = Reciprocal (s) w = Mul (r, g) q = Mul (d, w) y = Add (q, g)",
        more=ONES,
    ),
    Case(
        "SkipLayerNormalization",
        "y = com.microsoft.SkipLayerNormalization (x, r, g, g)",
        dims=(1, 4, 512),
        largest=40000,
        more=(("r", (1, 4, 512), 40000.0), *ONES),
    ),
    Case(
        "groups by InstanceNormalization",
        "sh = Constant <value_ints = [1, 2, -1]> () to = Constant <value_ints = [1, 4, 512]> () "
        "o = Constant <value_floats = [1.0, 1.0]> () one = CastLike (o, x) z = Sub (one, one) f = Reshape (x, sh) "
        "i = InstanceNormalization (f, one, z) b = Reshape (i, to) q = Mul (b, g) y = Add (q, g)",
        dims=(1, 4, 512),
        more=(("g", (4, 1), 1.0),),
    ),
    Case("LRN", "y = LRN <size = 5> (x)", dims=(1, 16, 8, 8)),
    Case(
        "distances by products",
        AXIS
        + TWO
        + "t = Transpose <perm = [1, 0]> (z) d = MatMul (x, t) a = ReduceSumSquare (x, ax) b = ReduceSumSquare (z, ax) "
        + "c = Transpose <perm = [1, 0]> (b) e = Mul (d, two) f = Add (a, c) h = Sub (f, e) y = Sqrt (h)",
        largest=1500,
        more=(("z", (6, 512), 1500.0),),
    ),
    # softmax
    Case("LogSoftmax of 65,536", "y = LogSoftmax <axis = -1> (x)", dims=(2, 65536), largest=30000),
    Case(
        "Softmax of a temperature",
        "t = Constant <value_float = 0.1> () q = Div (x, t) y = Softmax <axis = -1> (q)",
        largest=60000,
    ),
    Case("Softmax", "y = Softmax <axis = -1> (x)", largest=60000),
    Case("LogSoftmax", "z = Softmax <axis = -1> (x) y = ReduceMax (z)", largest=30000),
    Case("Exp, ReduceSum, Div", AXIS + "e = Exp (x) s = ReduceSum (e, ax) y = Div (e, s)", largest=14),
    Case(
        "ReduceMax, Sub, Exp, ReduceSum, Div",
        AXIS + "m = ReduceMax (x, ax) d = Sub (x, m) e = Exp (d) s = ReduceSum (e, ax) y = Div (e, s)",
        largest=60000,
    ),
    Case("ReduceLogSumExp", AXIS + "y = ReduceLogSumExp (x, ax)", largest=60000),
    Case("Exp, ReduceSum, Log", AXIS + "e = Exp (x) s = ReduceSum (e, ax) y = Log (s)", largest=20),
    # attention
    Case("scores without scale", **_attention(KEYS + SOFTMAX)),
    Case("scores, then a scale", **_attention(SCALE + KEYS.replace("s =", "u =") + "s = Mul (u, c) " + SOFTMAX)),
    Case(
        "scores, a scale, a mask",
        **_attention(SCALE + KEYS.replace("s =", "u =") + "q = Div (u, c) i = Sin (u) s = Add (q, i) " + SOFTMAX),
    ),
    Case(
        "scores with a soft cap",
        **_attention(
            SCALE
            + "f = Constant <value_float = 1000.0> () "
            + KEYS.replace("s =", "u =")
            + "q = Div (u, f) h = Tanh (q) s = Mul (h, f) "
            + SOFTMAX
        ),
    ),
    Case(
        "softmax written out",
        **_attention(
            AXIS
            + KEYS
            + "m = ReduceMax (s, ax) d = Sub (s, m) e = Exp (d) z = ReduceSum (e, ax) p = Div (e, z) y = MatMul (p, v)"
        ),
    ),
    Case(
        "scores and a mask of the lowest numbers",
        **_attention(KEYS.replace("s =", "u =") + "s = Add (u, m) " + SOFTMAX, (("m", (1, 1, 16, 40), 65000.0),)),
    ),
    Case(
        "MultiHeadAttention",
        "y = com.microsoft.MultiHeadAttention <num_heads = 2, scale = 1.0> (x, k, v)",
        dims=(1, 16, 128),
        largest=150,
        more=(("k", (1, 40, 128), 150.0), ("v", (1, 40, 128), 1.0)),
    ),
    Case("Attention", **_attention("y = Attention <scale = 1.0> (x, k, v)")),
    Case("8,192 keys", **_long(KEYS + SOFTMAX)),
    Case("Attention of 8,192 keys", **_long("y = Attention <scale = 1.0> (x, k, v)")),
    # GELU and other functions
    Case(
        "GELU by Erf",
        GELU + "f = Constant <value_float = 1.4142135> () q = Div (x, f) e = Erf (q) a = Add (e, one) y = Mul (h, a)",
        largest=60000,
    ),
    Case(
        "GELU by Tanh",
        GELU + CUBE + "q = Mul (x, x) r = Mul (q, x)  " + TANH,
        largest=60000,
    ),
    Case(
        "GELU by Pow",
        GELU + CUBE + "th = Constant <value_float = 3.0> () r = Pow (x, th)  " + TANH,
        largest=300,
    ),
    Case("Gelu", 'y = Gelu <approximate = "tanh"> (x)', largest=60000),
    Case(
        "SiLU",
        "z = Neg (x) e = Exp (z) o = Constant <value_float = 1.0> () a = Add (e, o) y = Div (x, a)",
        largest=60000,
    ),
    Case(
        "Softplus written out", "e = Exp (x) o = Constant <value_float = 1.0> () a = Add (e, o) y = Log (a)", largest=60
    ),
    # sums of many numbers
    Case("mean of 65,536", AXIS + "y = ReduceMean (x, ax)", dims=(2, 65536), mean=0.9),
    Case(
        "sum of 65,536, divided",
        AXIS + COUNT + "s = ReduceSum (x, ax) q = Div (s, n) r = Div (q, n) y = Div (r, n)",
        dims=(2, 65536),
        largest=200,
        mean=0.9,
    ),
    Case(
        "product of 65,536, divided",
        COUNT + "s = MatMul (x, w) q = Div (s, n) y = Div (q, n)",
        dims=(2, 65536),
        largest=30,
        mean=0.5,
        more=(("w", (65536, 2), 30.0),),
    ),
    Case("GlobalAveragePool", "y = GlobalAveragePool (x)", dims=(1, 2, 256, 256), mean=0.9),
    Case("AveragePool", "y = AveragePool <kernel_shape = [64, 64]> (x)", dims=(1, 2, 64, 64), mean=0.9),
    Case(
        "Conv, then a scale",
        COUNT + "s = Conv (x, w) y = Div (s, n)",
        dims=(1, 64, 8, 8),
        largest=100,
        mean=0.9,
        more=(("w", (4, 64, 3, 3), 100.0),),
    ),
]

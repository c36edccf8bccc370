"""The operator Gradient: ONNX's own vectors, values given in other places, second order, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kit.interpret import run
from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import NotDifferentiable, PyRuntimeError
from pyruntime.frontend.trace_graph import TensorSpec, trace_graph
from pyruntime.ir.dtype import F64
from pyruntime.ir.kernel import Loop
from pyruntime.onnx import load
from pyruntime.onnx.weight_values import elements
from tests.ops.compare import parsed

TRAINING = "ai.onnx.preview.training"
OFFICIAL = Path(onnx.__file__).parent / "backend/test/data/simple"


def gradients(text: str, **feeds: Any) -> list[np.ndarray]:
    """The outputs of a model in double, natively, checked against the reference evaluator."""
    model = parsed(text, 22, **{TRAINING: 1}).SerializeToString()
    values = {name: np.asarray(x, np.float64) for name, x in feeds.items()}
    found = InferenceSession(model, providers=["wasm"]).run(None, values)
    for got, want in zip(found, run(model, values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)
    return found


@pytest.mark.parametrize("name", ["add", "add_and_mul"])
def test_official_vectors(name: str) -> None:
    folder = OFFICIAL / f"test_gradient_of_{name}"
    model = onnx.load(str(folder / "model.onnx"))

    def read(kind: str, values: Any) -> list[np.ndarray]:
        paths = [folder / "test_data_set_0" / f"{kind}_{n}.pb" for n in range(len(values))]
        return [numpy_helper.to_array(onnx.load_tensor(str(path))) for path in paths]

    feeds = dict(zip([i.name for i in model.graph.input], read("input", model.graph.input), strict=True))
    found = InferenceSession(model.SerializeToString(), providers=["wasm"]).run(None, feeds)
    for got, want in zip(found, read("output", model.graph.output), strict=True):
        np.testing.assert_allclose(got, want)


@pytest.mark.parametrize(
    ("op", "at_0"),
    [("Softplus", 0.5), ("Celu", 1), ("Elu", 1), ("Relu", 0), ("Abs", 0), ("Sigmoid", 0.25), ("Mish", 0.6)],
)
def test_activations_at_0(op: str, at_0: float) -> None:
    """0 is where weights begin that are not drawn at random."""
    text = f"""g (float[1] x) => (float[1] d) {{ y = {op}(x)
        d = ai.onnx.preview.training.Gradient<xs = ["x"], y = "y">(x) }}"""
    model = parsed(text, 22, **{TRAINING: 1}).SerializeToString()
    (found,) = InferenceSession(model, providers=["wasm"]).run(None, {"x": np.zeros(1, np.float32)})
    np.testing.assert_allclose(found, [at_0], rtol=1e-6)


def test_the_target_need_not_be_an_output() -> None:
    (d,) = gradients(
        """g (double[2] x) => (double[2] d) {
        y = Exp(x)
        d = ai.onnx.preview.training.Gradient<xs = ["x"], y = "y">(x) }""",
        x=[0.0, 1.0],
    )
    np.testing.assert_allclose(d, np.exp([0.0, 1.0]))


def test_values_can_be_given_elsewhere() -> None:
    """dy/dh and dy/dz where h is h1, not exp(w)."""
    found = gradients(
        """g (double[3] w, double[3] h1, double[3] z) => (double[3] dh, double[3] dz) {
        h = Exp(w)
        hz = Mul(h, z)
        y = Mul(hz, h)
        dh, dz = ai.onnx.preview.training.Gradient<xs = ["h", "z"], y = "y">(h1, z) }""",
        w=[0.0, 1.0, 2.0], h1=[1.0, 2.0, 3.0], z=[4.0, 5.0, 6.0],
    )  # fmt: skip
    np.testing.assert_allclose(found, [[8.0, 20.0, 36.0], [1.0, 4.0, 9.0]])


def test_constants_let_nothing_through() -> None:
    (d,) = gradients(
        """g (double[2] w) => (double[2] d) {
        h = Exp(w)
        y = Mul(w, h)
        d = ai.onnx.preview.training.Gradient<xs = ["w"], zs = ["h"], y = "y">(w, h) }""",
        w=[1.0, 2.0],
    )
    np.testing.assert_allclose(d, np.exp([1.0, 2.0]))


def test_a_value_that_does_not_contribute_gets_zeros() -> None:
    (d,) = gradients(
        """g (double[2] w) => (double[2] d) {
        y = Ceil(w)
        d = ai.onnx.preview.training.Gradient<xs = ["w"], y = "y">(w) }""",
        w=[1.0, 2.0],
    )
    np.testing.assert_array_equal(d, [0.0, 0.0])


def test_second_order() -> None:
    """d²(w³)/dw² = 6w."""
    (d,) = gradients(
        """g (double[2] w) => (double[2] second) {
        ww = Mul(w, w)
        y = Mul(ww, w)
        first = ai.onnx.preview.training.Gradient<xs = ["w"], y = "y">(w)
        second = ai.onnx.preview.training.Gradient<xs = ["w"], y = "first">(w) }""",
        w=[1.0, 2.0],
    )
    np.testing.assert_allclose(d, [6.0, 12.0])


# Models of x (double[2, 3]) with the output y, whose gradient is compared with finite differences.
COMPARED: dict[str, str] = {
    "If": """total = ReduceSum<keepdims = 0>(x)
        c = Greater(total, zero)
        y = If(c) <then_branch = t () => (double[2, 3] a) { a = Exp(x) },
                   else_branch = e () => (double[2, 3] b) { b = Mul(x, x) }>""",
    "Loop": """y, all = Loop(trips, "", x) <body = b (int64 i, bool on, double[2, 3] h)
            => (bool go, double[2, 3] next, double[2, 3] out) {
            go = Identity(on)
            hx = Mul(h, x)
            next = Sin(hx)
            out = Exp(h) }>""",
    "Loop of stacked values": """last, y = Loop(trips, "", x) <body = b (int64 i, bool on, double[2, 3] h)
            => (bool go, double[2, 3] next, double[2, 3] out) {
            go = Identity(on)
            next = Sin(h)
            out = Mul(h, x) }>""",
    "Loop that carries nothing": """y = Loop(trips, "") <body = b (int64 i, bool on) => (bool go, double[2, 3] out) {
            go = Identity(on)
            n = Cast<to = 11>(i)
            p = Mul(n, x)
            out = Sin(p) }>""",
    "Scan": """h0 = ReduceSum<keepdims = 0>(x, axis)
        last, y = Scan<num_scan_inputs = 1, body = b (double[3] h, double[3] row)
            => (double[3] next, double[3] out) {
            p = Mul(h, row)
            next = Tanh(p)
            out = Add(next, row) }>(h0, x)""",
    "Scan backwards along the last axis": """h0 = ReduceSum<keepdims = 0>(x, one_axis)
        last, y = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
                       body = b (double[2] h, double[2] column) => (double[2] next, double[2] out) {
            p = Mul(h, column)
            next = Tanh(p)
            out = Sub(next, column) }>(h0, x)""",
    "Loop of slices": """h0 = ReduceSum<keepdims = 0>(x, axis)
        last, y = Loop(two, "", h0) <body = b (int64 i, bool on, double[3] h)
            => (bool go, double[3] next, double[3] out) {
            go = Identity(on)
            row = Gather<axis = 0>(x, i)
            p = Mul(h, row)
            next = Tanh(p)
            out = Sub(next, row) }>""",
    "Loop inside a Scan": """h0 = ReduceSum<keepdims = 0>(x, axis)
        last, y = Scan<num_scan_inputs = 1, body = b (double[3] h, double[3] row)
            => (double[3] next, double[3] out) {
            inner, all = Loop(trips, "", h) <body = c (int64 i, bool on, double[3] a)
                => (bool go, double[3] b, double[3] e) {
                go = Identity(on)
                ar = Mul(a, row)
                b = Sin(ar)
                e = Exp(b) }>
            sum = ReduceSum<keepdims = 0>(all, axis)
            next = Tanh(inner)
            out = Add(sum, next) }>(h0, x)""",
    "If inside a Loop": """h0 = ReduceSum<keepdims = 0>(x, axis)
        last, y = Loop(two, "", h0) <body = b (int64 i, bool on, double[3] h)
            => (bool go, double[3] next, double[3] out) {
            go = Identity(on)
            row = Gather<axis = 0>(x, i)
            total = ReduceSum<keepdims = 0>(h)
            c = Greater(total, zero)
            next = If(c) <then_branch = t () => (double[3] p) { q = Mul(h, row)  p = Sin(q) },
                          else_branch = e () => (double[3] r) { r = Sub(h, row) }>
            out = Exp(next) }>""",
    "sequences": """parts = SplitToSequence<axis = 0>(x)
        first = SequenceAt(parts, zero_index)
        e = Exp(first)
        more = SequenceInsert(parts, e)
        less = SequenceErase(more, zero_index)
        y = ConcatFromSequence<axis = 0>(less)""",
    "optionals": """o = Optional(x)
        z = OptionalGetElement(o)
        y = Exp(z)""",
    "recurrence in a branch": """total = ReduceSum<keepdims = 0>(x)
        c = Greater(total, zero)
        steps = Unsqueeze(x, one_axis)
        w = Unsqueeze(x, axis)
        xt = Transpose(x)
        xx = MatMul(x, xt)
        r = Unsqueeze(xx, axis)
        y = If(c) <then_branch = t () => (double[1, 1, 2] h) { hs, h = RNN<hidden_size = 2>(steps, w, r) },
                   else_branch = e () => (double[1, 1, 2] k) { ks, k = RNN<hidden_size = 2>(steps, w, r) }>""",
    "SequenceMap": """parts = SplitToSequence<axis = 0>(x)
        mapped = SequenceMap(parts, x) <body = b (double[1, 3] row, double[2, 3] z) => (double[2, 3] out) {
            p = Mul(row, z)
            out = Tanh(p) }>
        y = ConcatFromSequence<axis = 0>(mapped)""",
    "Range": """start = ReduceSum<keepdims = 0>(x)
        least = ReduceMin<keepdims = 0>(x)
        delta = Exp(least)
        far = Mul(delta, four_steps)
        limit = Add(start, far)
        y = Range(start, limit, delta)""",
    "SequenceConstruct": """e = Exp(x)
        pair = SequenceConstruct(x, e)
        y = ConcatFromSequence<axis = 1>(pair)""",
}


@pytest.mark.parametrize("name", COMPARED)
def test_gradients_of_blocks_and_sequences(name: str) -> None:
    text = f"""g (double[2, 3] x) => (double s, double[2, 3] d)
        <double zero = {{0}}, double four_steps = {{3.3}}, int64[1] axis = {{0}}, int64[1] one_axis = {{1}},
        int64 zero_index = {{0}}, int64 trips = {{4}}, int64 two = {{2}}> {{
        {COMPARED[name]}
        yy = Mul(y, y)
        s = ReduceSum<keepdims = 0>(yy)
        d = {TRAINING}.Gradient<xs = ["x"], y = "s">(x) }}"""
    session = InferenceSession(parsed(text, 22, **{TRAINING: 1}).SerializeToString(), providers=["wasm"])
    rng = np.random.default_rng(4)
    x, along = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    _, d = session.run(None, {"x": x})
    ends = [float(session.run(["s"], {"x": x + step * along})[0]) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose((d * along).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["Loop", "Loop of slices", "Loop that carries nothing", "Scan backwards along the last axis"]
)
def test_the_gradient_of_a_loop_is_a_procedure_of_linear_time(name: str) -> None:
    """The backward loop carries nothing as large as an input of which each step reads a slice, and becomes one
    procedure, too. A second derivative agrees with the first one's differences."""
    text = f"""g (double[N, N] x) => (double s, double[N, N] d, double[N, N] dd)
        <double zero = {{0}}, int64[1] axis = {{0}}, int64[1] one_axis = {{1}}, int64 trips = {{4}}, int64 two = {{6}}>
        {{
        {COMPARED[name]}
        yy = Mul(y, y)
        s = ReduceSum<keepdims = 0>(yy)
        d = {TRAINING}.Gradient<xs = ["x"], y = "s">(x)
        first = ReduceSum<keepdims = 0>(d)
        dd = {TRAINING}.Gradient<xs = ["x"], y = "first">(x) }}"""
    for size in "236":
        text = text.replace(f"double[{size}", "double[6").replace(f", {size}]", ", 6]")
    model = parsed(text.replace("double[N, N]", "double[6, 6]"), 22, **{TRAINING: 1}).SerializeToString()
    session = InferenceSession(model, providers=["wasm"])
    found = [n["loop"] for n in session.explain()["nodes"] if n["loop"] and n["node"].count("gradient of") < 2]
    assert found == ["written as one procedure"] * 2
    rng = np.random.default_rng(4)
    x, along = rng.normal(size=(6, 6)), rng.normal(size=(6, 6))
    _, _, dd = session.run(None, {"x": x})
    steps = SessionOptions(disabled_passes=["whole_loops"])
    np.testing.assert_allclose(InferenceSession(model, steps, ["wasm"]).run(["dd"], {"x": x})[0], dd, rtol=1e-9)
    ends = [float(session.run(["d"], {"x": x + step * along})[0].sum()) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose((dd * along).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-5)
    if "slices" in name or "Scan" in name:
        traced = trace_graph(load(model), {"x": TensorSpec(F64, (6, 6))}, elements, {})
        loops = [k for k in traced.block.kernels if isinstance(k, Loop) and k.node.count("gradient of") < 2]
        assert len(loops) == 3 and {t.shape for k in loops for t in k.carried} == {(6,)}


@pytest.mark.parametrize("rows", [1, 3])
def test_gradients_of_recurrent_weights_are_products_of_all_steps(rows: int) -> None:
    """The backward loop carries the flow into the state alone. The gradients agree with differences."""
    text = f"""g (double[T, {rows}, 4] x, double[4, 6] w, double[6, 6] r)
        => (double s, double[4, 6] dw, double[6, 6] dr)
        <double two = {{2}}, double[{rows}, 6] start = {{{", ".join(["0.5"] * 6 * rows)}}}> {{
        y, ys = Scan <num_scan_inputs = 1, body = b (double[{rows}, 6] h, double[{rows}, 4] u)
            => (double[{rows}, 6] v, double[{rows}, 6] o) {{
                a = MatMul(u, w)  b1 = MatMul(h, r)  k = Add(a, b1)  v = Tanh(k)  o = Mul(v, v) }}> (start, x)
        s = ReduceSum<keepdims = 0>(ys)
        dw, dr = {TRAINING}.Gradient<xs = ["w", "r"], y = "s">(w, r) }}"""
    session = InferenceSession(parsed(text, 22, **{TRAINING: 1}).SerializeToString(), providers=["wasm"])
    rows_of_nodes = session.explain()["nodes"]
    assert [n["loop"] for n in rows_of_nodes if n["loop"]] == ["written as one procedure"] * 2
    assert sum(n["calls"] for n in rows_of_nodes if "gradient of MatMul" in n["node"]) == 2
    rng = np.random.default_rng(4)
    feeds = {"x": rng.normal(size=(5, rows, 4)), "w": rng.normal(size=(4, 6)), "r": rng.normal(size=(6, 6))}
    along = {name: rng.normal(size=feeds[name].shape) for name in "wr"}
    _, dw, dr = session.run(None, feeds)
    ends = [
        float(session.run(["s"], {**feeds, **{n: feeds[n] + step * d for n, d in along.items()}})[0])
        for step in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose((dw * along["w"]).sum() + (dr * along["r"]).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


REFUSED: dict[str, tuple[str, type[Exception], str]] = {
    "integers": (
        """g (int64[2] w) => (int64[2] d) {
        y = Add(w, w)
        d = ai.onnx.preview.training.Gradient<xs = ["w"], y = "y">(w) }""",
        PyRuntimeError, '"w", it is int64',
    ),
    "no such value": (
        """g (float[2] w) => (float[2] d) {
        y = Add(w, w)
        d = ai.onnx.preview.training.Gradient<xs = ["w"], y = "z">(w) }""",
        PyRuntimeError, '"z" is not defined',
    ),
    "another shape": (
        """g (float[2] w, float[3] v) => (float[2] d) {
        y = Add(w, w)
        d = ai.onnx.preview.training.Gradient<xs = ["w"], y = "y">(v) }""",
        PyRuntimeError, 'input for "w"',
    ),
    "a loop inside a loop, whose stack has a length that depends on the step": (
        """g (float[3, 2] w) => (float[3, 2] d) <bool yes = {1}, float[2] one = {1, 1}> {
        last = Loop<body = b (int64 n, bool on, float[2] h) => (bool go, float[2] h3) {
            go = Identity(on)
            h2, all = Loop<body = inner (int64 i, bool c, float[2] a) => (bool c2, float[2] a2, float[2] z) {
                c2 = Identity(c)  row = Gather(w, i)  a2 = Mul(a, row)  z = Identity(a2) }>(n, yes, h)
            h3 = ReduceSum<keepdims = 0>(all, zero) }>(three, yes, one)
        d = ai.onnx.preview.training.Gradient<xs = ["w"], y = "last">(w) }""".replace(
            "<bool", "<int64 three = {3}, int64[1] zero = {0}, bool"
        ),
        NotDifferentiable, 'Loop .* a Loop with dims that a run decides inside If or Loop .*of w passes through it',
    ),
    "the second derivative of a recurrence": (
        """g (float[3, 1, 2] x, float[1, 8, 2] w, float[1, 8, 2] r) => (float[3, 1, 2] d) {
        y = LSTM<hidden_size = 2>(x, w, r)
        a = ai.onnx.preview.training.Gradient<xs = ["x"], y = "y">(x)  b = Mul(a, a)
        d = ai.onnx.preview.training.Gradient<xs = ["x"], y = "b">(x) }""",
        NotDifferentiable, 'gradient of LSTM .*the procedure lstm_back has no gradient',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    text, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        InferenceSession(parsed(text, 22, **{TRAINING: 1}).SerializeToString(), providers=["wasm"])


def test_not_differentiable_is_an_unsupported_operator() -> None:
    from pyruntime import UnsupportedOp

    assert issubclass(NotDifferentiable, UnsupportedOp)


# rows, N, K, bits, block size, zero points: at the edges of panels, blocks of k and blocks of rows
OF_FEW_BITS = [
    (5, 256, 512, 4, 32, False), (1, 255, 500, 4, 32, True), (3, 392, 300, 4, 16, False), (33, 9, 130, 8, 32, True),
    (2, 385, 129, 8, 16, False), (13, 17, 40, 2, 16, True), (4, 24, 64, 5, 64, False), (7, 1, 16, 3, 16, True),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "n", "k", "bits", "size", "zeros"), OF_FEW_BITS)
def test_products_by_codes(rows: int, n: int, k: int, bits: int, size: int, zeros: bool) -> None:
    """Product and gradient read the same codes, which are in memory once and not as floats."""
    rng, blocks = np.random.default_rng(0), -(-k // size)
    codes = rng.integers(0, 1 << bits, (n, blocks * size))
    scales = rng.uniform(0.1, 1, (n, blocks)).astype(np.float32)
    zero = rng.integers(0, 1 << bits, (n, blocks)).astype(np.float32)
    packed = np.packbits((codes[..., None] >> np.arange(bits) & 1).astype(np.uint8), axis=None, bitorder="little")
    given = {"b": packed.reshape(n, blocks, size * bits // 8), "s": scales, **({"z": zero} if zeros else {})}
    model = parsed(
        f"""g (float[{rows}, {k}] x, float[{rows}, {n}] u) => (float[{rows}, {n}] y, float[{rows}, {k}] d) {{
        y = com.microsoft.MatMulNBits<K = {k}, N = {n}, bits = {bits}, block_size = {size}>(x, {", ".join(given)})
        uy = Mul(u, y)
        d = {TRAINING}.Gradient<xs = ["x"], y = "uy">(x) }}""",
        21, **{TRAINING: 1, "com.microsoft": 1},
    )  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in given.items())
    session = InferenceSession(model.SerializeToString(), providers=["wasm"])
    x, u = (rng.normal(size=(rows, m)).astype(np.float32) for m in (k, n))
    y, d = session.run(None, {"x": x, "u": u})
    middle = zero.repeat(size, 1) if zeros else float(1 << (bits - 1))
    real = ((codes - middle) * scales.repeat(size, 1))[:, :k]
    for got, want in ((y, x @ real.T), (d, u @ real)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-6 * np.abs(real).max() * max(n, k))
    if bits == 4 and n > 255:
        assert session.memory().weights < 1.2 * sum(value.nbytes for value in given.values())


NORMS = {
    "LpNormalization": ("y = LpNormalization<axis = 1>(x)", lambda x, n: (1 - x * x.sum() / n**2) / n),
    "ReduceL2": ("axes = Constant<value_ints = [1]>()  y = ReduceL2(x, axes)", lambda x, n: x / n),
    "LpPool": ("y = LpPool<kernel_shape = [3], p = 2>(x)", lambda x, n: x / n),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_zeros(name: str) -> None:
    """A row of zeros has the gradient 0, and the others are as they are."""
    text, derivative = NORMS[name]
    x = np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 3.0]])
    shape, given = ("2, 3", x) if name != "LpPool" else ("2, 1, 3", x[:, None])
    (d,) = gradients(f"""g (double[{shape}] x) => (double[{shape}] d) {{
        {text}  loss = ReduceSum(y)  d = {TRAINING}.Gradient<xs = ["x"], y = "loss">(x) }}""", x=given)  # fmt: skip
    want = np.stack([np.zeros(3), derivative(x[1], np.linalg.norm(x[1]))])
    np.testing.assert_allclose(d.reshape(2, 3), want, rtol=1e-6)

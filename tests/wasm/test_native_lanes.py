"""Elementwise loops in machine code: the same bits as WebAssembly, and names of functions from hostile files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from kit import training_networks
from kit.machine_code import usable
from pyruntime import InferenceSession, SessionOptions, TrainingSession
from pyruntime.providers.wasm.native import pages
from pyruntime.providers.wasm.printer import native_lanes, native_words
from pyruntime.providers.wasm.printer.assembler import Function, Module
from pyruntime.providers.wasm.printer.native_imports import elementwise_function, import_of, memories_word

from .native import EDGES, SIZE, Direct, needs_code, system_v

SIZES = (15, 16, 17, 23, 24, 25, 72)
SPECIAL = np.float32(
    "nan inf -inf 0 -0.0 1e-40 -1e-40 1e-38 3e38 -3e38 88.8 -88 -104 .5 1.5 2.5 -.5 2147483648 -2147483648 256".split()
)
FLOATS = "Sigmoid Tanh Exp Erf Relu Round Floor Sqrt Gelu Softplus Abs HardSwish Neg".split()
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32"]
NAME = "lanes/load.uint8.0/vcvtdq2ps.0:0/scalar.0/vmulps.0:1:2/store.float32.1:3"


def results(text: str, feeds: dict[str, np.ndarray], code: bool | str) -> list[np.ndarray]:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    session = InferenceSession(model.SerializeToString(), SessionOptions(native_code=code))
    return session.run(None, feeds)


def models() -> dict[str, tuple[str, str]]:
    """A graph and the type of x by name; each has an output for each size."""
    found: dict[str, tuple[str, str]] = {}
    for op in FLOATS:
        found[op] = "float", "".join(f"y{n} = {op} (x{n}) " for n in SIZES)
    for kind in INTEGERS:
        there = onnx.TensorProto.DataType.Value(kind.upper())
        found[f"to {kind}"] = "float", "".join(f"y{n} = Cast<to = {there}> (x{n}) " for n in SIZES)
        body = "a{0} = Mul (x{0}, x{0}) b{0} = Max (a{0}, x{0}) y{0} = Cast<to = 1> (b{0}) "
        found[f"of {kind}"] = kind, "".join(body.format(n) for n in SIZES)
    return found


@needs_code
@pytest.mark.parametrize("name", models())
def test_bits_are_those_of_webassembly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def counted(module: Module, name: str) -> Function | None:
        called.append(name)
        return elementwise_function(module, name)

    monkeypatch.setattr(native_lanes, "elementwise_function", counted)
    kind, body = models()[name]
    to = name.removeprefix("to ") if name.startswith("to ") else "float"
    inputs, outputs = (", ".join(f"{t}[{n}] {v}{n}" for n in SIZES) for t, v in ((kind, "x"), (to, "y")))
    rng, feeds = np.random.default_rng(1), {}
    for n in SIZES:
        if kind == "float":
            feeds[f"x{n}"] = np.resize(rng.permutation(np.append(SPECIAL, np.float32(10 * rng.standard_normal(12)))), n)
        else:
            feeds[f"x{n}"] = rng.integers(-(2**15), 2**15, n).astype(kind)
    want = results(f"g ({inputs}) => ({outputs}) {{ {body} }}", feeds, False)
    for code in usable():
        called.clear()
        for got, expected in zip(results(f"g ({inputs}) => ({outputs}) {{ {body} }}", feeds, code), want, strict=True):
            assert got.tobytes() == expected.tobytes()
        assert called


@needs_code
def test_quantised_rows() -> None:
    """Requantisation by scales and zero points of both signs."""
    for kind in ("int8", "uint8"):
        head = f"<float s = {{0.05}}, {kind} z = {{3}}>"
        ends = " ".join(f"q{n} = QuantizeLinear (x{n}, s, z) y{n} = DequantizeLinear (q{n}, s, z)" for n in SIZES)
        inputs, outputs = (", ".join(f"float[{n}] {v}{n}" for n in SIZES) for v in "xy")
        feeds = {f"x{n}": np.resize(SPECIAL, n) for n in SIZES}
        text = f"g ({inputs}) => ({outputs}) {head} {{ {ends} }}"
        want = results(text, feeds, False)
        for code in usable():
            assert [y.tobytes() for y in results(text, feeds, code)] == [y.tobytes() for y in want]


@needs_code
def test_loops_with_several_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of recurrences: states and outputs are stored together, with values that several of them read."""
    made: list[str] = []

    def written(module: Module, name: str) -> Function | None:
        made.append(name)
        return elementwise_function(module, name)

    monkeypatch.setattr(native_lanes, "elementwise_function", written)
    rng = np.random.default_rng(3)
    shapes = {"x": (5, 2, 30), "w": (1, 120, 30), "r": (1, 120, 30), "h": (2, 30)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    text = """g (float[T, 2, 30] x, float[1, 120, 30] w, float[1, 120, 30] r, float[2, 30] h)
        => (float[T, 1, 2, 30] y, float[1, 2, 30] yh, float[1, 2, 30] yc, float[2, 30] k, float[T, 2, 30] ks) {
        y, yh, yc = LSTM <hidden_size = 30> (x, w, r)
        k, ks = Scan <num_scan_inputs = 1, body = b (float[2, 30] s, float[2, 30] u) =>
            (float[2, 30] v, float[2, 30] o) { p = Mul (s, u)  v = Tanh (p)  e = Sigmoid (v)  o = Sub (e, u) }> (h, x)
    }"""
    want = results(text, feeds, False)
    for code in usable():
        made.clear()
        got = results(text, feeds, code)
        for a, b in zip(got[:3], want[:3], strict=True):  # the products of LSTM sum in another order
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert [y.tobytes() for y in got[3:]] == [y.tobytes() for y in want[3:]]
        assert [name.count("/store.") for name in made if "vdivps" in name] == [2, 2, 2]


@needs_code
@pytest.mark.filterwarnings("ignore:pyruntime. step 3")
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "adamw", "adagrad", "lion", "rmsprop"])
def test_updates_of_weights(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They depend on a condition that is equal for all elements: whether the step is good."""
    made: list[str] = []

    def written(module: Module, name: str) -> Function | None:
        made.append(name)
        return elementwise_function(module, name)

    monkeypatch.setattr(native_lanes, "elementwise_function", written)
    rng = np.random.default_rng(4)
    x, y = [{v: (onnx.TensorProto.FLOAT, [1, 75])} for v in "xy"]
    weights = {"w": rng.standard_normal(75).astype(np.float32)}
    net = training_networks.model([training_networks.node("Mul", "x w", "y")], x, y, weights)
    batches = [{v: rng.standard_normal((1, 75)).astype(np.float32) for v in ("x", "target")} for _ in range(4)]
    batches[2]["x"][0, 40] = np.nan
    found = []
    for code in (False, *usable()):
        made.clear()
        options = SessionOptions(native_code=code)
        session = TrainingSession(net, loss={"mse": "y"}, optimizer=optimizer, trainable=["w"], sess_options=options)
        values = []
        for batch in batches:
            session.step(batch)
            values.append(session.weights()["w"])
        assert not np.array_equal(values[0], values[1])
        assert np.array_equal(values[1], values[2])
        found.append([v.tobytes() for v in values])
        assert any(name.count("/store.") > 1 for name in made) == bool(code)
    assert all(v == found[0] for v in found)


@needs_code
@system_v
def test_a_call_reaches_nothing_but_its_memory() -> None:
    """The result says whether the operands fit; no byte outside of y changes."""
    call, rng, done = Direct("avx2", NAME), np.random.default_rng(2), 0
    for turn in range(2000):
        count = int(rng.integers(8, 100))
        o = {"count": count, "at0": int(rng.integers(SIZE - count)), "at1": int(rng.integers(SIZE - 4 * count))}
        if turn % 2:
            o[str(rng.choice(list(o)))] = int(rng.choice(EDGES))
        n, sizes = o["count"] % 2**32, ((o["at0"], 1), (o["at1"], 4))
        fits = 8 <= n <= 1 << 20 and all(at % 2**32 + size * n <= SIZE for at, size in sizes)
        before = call.memory.copy()
        assert call(**o, scalar0=0x3F800000) == fits, o  # 1.0
        if fits:
            at, whole = o["at1"], n & -8
            if not set(range(at, at + 4 * n)) & set(range(o["at0"], o["at0"] + n)):
                x = before[o["at0"] : o["at0"] + whole].astype(np.float32)
                np.testing.assert_array_equal(call.memory[at : at + 4 * whole].copy().view(np.float32), x)
            before[at : at + 4 * whole] = call.memory[at : at + 4 * whole]
            done += 1
        np.testing.assert_array_equal(call.memory, before)
    assert 800 < done < 1900


@pytest.mark.parametrize(
    "name",
    [
        "lanes",
        "lanes/store.float32.0:0",
        "lanes/load.float32.0/store.float32.1:1",
        "lanes/load.float32.0/store.float32.1:-1",
        "lanes/load.float32.0/store.float32.0:0",
        "lanes/load.float64.0/store.float32.1:0",
        "lanes/load.float32.0/vmulps.0:0/store.float32.1:1",
        "lanes/load.float32.0/vaddps.0:1:0/store.float32.1:1",
        "lanes/load.float32.0/store.float32.1:0/store.float32.2:1",
        "lanes/load.float32.0/store.float32.1:0/vaddps.0:0:0/store.float32.2:1",
        "lanes/load.uint8.0/store.uint8.1:0/store.uint8.2:0",
        "lanes/load.float32.0/const.1/vblendvps.0:0:0:1/store.float32.1:2",
        "lanes/load.float32.0/vpslld.32:0/store.float32.1:1",
        "lanes/load.float32.0/const.4294967296/store.float32.1:1",
        "lanes/load.float32.0/mov.0:0/store.float32.1:1",
        "lanes/" + "/".join(f"load.float32.{n}" for n in range(11)) + "/store.float32.11:0",
        "lanes/load.float32.0/" + "vsqrtps.0:0/" * 255 + "store.float32.1:3",
        # sixteen values at a time
        "lanes/load.float32.0/" + "/".join(f"vroundps.{n}:0" for n in range(16)) + "/"
        + "/".join(f"vaddps.0:{n}:{n}" for n in range(1, 17)) + "/store.float32.1:5",
    ],
)  # fmt: skip
def test_names_that_are_not_right(name: str) -> None:
    """They are no functions, so modules that import them do not load."""
    assert native_words.parse(name) is None
    assert import_of(name) is None


@needs_code
def test_memories_of_many_addresses() -> None:
    """Four addresses may be in any memory; with another one in a further memory the function declines."""
    loads = "/".join(f"load.float32.{n}" for n in range(5))
    name = f"lanes/{loads}/vaddps.0:0:4/store.float32.5:5"
    assert memories_word(name, (0, 1, 2, 0, 3, 0, 0, 0)) == 0x03000201
    assert memories_word(name, (0, 0, 0, 0, 0, 1, 0, 0)) == -1
    assert pages.native_code(usable()[-1]).address(name)

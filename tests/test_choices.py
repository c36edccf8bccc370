"""Measured choices: every value of every knob gives right results, and the fastest one is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from kit import attention_cases, zoo
from kit.gpu import GPU
from pyruntime import InferenceSession, InvalidInput, SessionOptions
from pyruntime.codegen.choices import ATTENTION, CONTRACTION, KNOBS, WINOGRAD_TILES, Choices, trials
from pyruntime.native.tools import tuning
from pyruntime.providers.webgpu.schedules import register_tile, workgroup_tile

RNG = np.random.default_rng(98)
CONV = "Conv (opset 18)"


def floats(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def built(text: str, **weights: np.ndarray) -> bytes:
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> {text}')
    made.graph.initializer.extend([onnx.numpy_helper.from_array(value, name) for name, value in weights.items()])
    return made.SerializeToString()


def opened(data: bytes, provider: str = "wasm", threads: int = 1, **values: int | str | Mapping[str, Any]) -> Any:
    chosen = {knob: {"": value} if isinstance(value, (int, str)) else value for knob, value in values.items()}
    # machine code gathers windows where WebAssembly's convolutions have units of tiles
    options = SessionOptions(choices=chosen, intra_op_num_threads=threads, native_code=False)
    return InferenceSession(data, options, providers=[GPU, "wasm"] if provider == "webgpu" else ["wasm"])


def written(session: Any) -> tuple[bytes, str]:
    """A Program's code and the numbers that its calls are made with."""
    program = session._native.latest().program
    return program.blob, str(program.header["blocks"])


# channels, filters, height, width: with units of 128 tiles all rows are one, or part of the last, or some are left over
@pytest.mark.parametrize("sizes", [(3, 1, 12, 12), (17, 40, 37, 66), (64, 8, 70, 19), (200, 33, 16, 40)])
@pytest.mark.parametrize("tiles", KNOBS[WINOGRAD_TILES].values)
@pytest.mark.parametrize("threads", [1, 2])
def test_units_of_winograd(sizes: tuple[int, ...], tiles: int, threads: int) -> None:
    c, m, h, w = sizes
    for dims in (f"2, {c}, {h}, {w}", f"b, {c}, h, w"):
        text = f"""g (float[{dims}] x) => (y) {{
            a = Conv <pads = [1, 0, 2, 1]> (x, w, b)  s = Sigmoid (a)  y = Mul (a, s) }}"""
        data = built(text, w=floats(m, c, 3, 3), b=floats(m))
        x = floats(2, c, h, w)
        (got,) = opened(data, threads=threads, winograd_tiles=tiles).run(None, {"x": x})
        np.testing.assert_allclose(got, zoo.oracle(data, {"x": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tiles", KNOBS[WINOGRAD_TILES].values)
def test_units_of_codes(tiles: int) -> None:
    text = "g (uint8[1, 24, 45, 77] x) => (int32[1, m, h, w] y) { y = ConvInteger <pads = [1, 1, 1, 1]> (x, w) }"
    data = built(text, w=RNG.integers(-128, 128, (19, 24, 3, 3), np.int8))
    x = RNG.integers(0, 256, (1, 24, 45, 77), np.uint8)
    session = opened(data, winograd_tiles=tiles)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], zoo.oracle(data, {"x": x})[0])
    assert written(session) != written(opened(data))


PRODUCTS = [(1, 5, 7), (15, 16, 17), (16, 3, 16), (31, 33, 47), (33, 16, 64), (64, 40, 36)]


@pytest.mark.parametrize("m,k,n", PRODUCTS)
@pytest.mark.parametrize("tile", KNOBS[CONTRACTION].values)
def test_tiles_of_products(m: int, k: int, n: int, tile: str) -> None:
    check_product(m, k, n, "float", 1e-5, tile)


@pytest.mark.parametrize("kind,tolerance", [("float16", 1e-2), ("int32", 0)])
@pytest.mark.parametrize("tile", KNOBS[CONTRACTION].values)
def test_tiles_of_types(kind: str, tolerance: float, tile: str) -> None:
    check_product(33, 17, 47, kind, tolerance, tile)


def check_product(m: int, k: int, n: int, kind: str, tolerance: float, tile: str) -> None:
    data = built(f"g ({kind}[2, {m}, {k}] a, {kind}[{k}, {n}] b) => (y) {{ p = MatMul (a, b)  y = Abs (p) }}")
    dtype = kind if kind != "float" else "float32"
    feeds = {"a": RNG.integers(-4, 5, (2, m, k)).astype(dtype), "b": RNG.integers(-4, 5, (k, n)).astype(dtype)}
    (got,) = opened(data, "webgpu", contraction=tile).run(None, feeds)
    want = np.abs(feeds["a"].astype(np.float64) @ feeds["b"])
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=tolerance)


@pytest.mark.parametrize("group,stride,window", [(1, 1, 3), (1, 2, 3), (1, 1, 1), (2, 1, 3), (36, 1, 3)])
@pytest.mark.parametrize("tile", KNOBS[CONTRACTION].values)
def test_tiles_of_convolutions(group: int, stride: int, window: int, tile: str) -> None:
    for dims in ("2, 36, 13, 11", "b, 36, h, w")[: 1 + (stride == group == 1 and window == 3)]:
        pad = window // 2
        text = f"""g (float[{dims}] x) => (y) {{
            a = Conv <group = {group}, strides = [{stride}, {stride}], pads = [{pad}, {pad}, {pad}, {pad}]> (x, w, b)
            y = Relu (a) }}"""
        data = built(text, w=floats(72, 36 // group, window, window), b=floats(72))
        feeds = {"x": floats(2, 36, 13, 11)}
        (got,) = opened(data, "webgpu", contraction=tile).run(None, feeds)
        np.testing.assert_allclose(got, zoo.oracle(data, feeds)[0], rtol=1e-4, atol=1e-4)


def test_each_tile_makes_code_of_its_own() -> None:
    data = built("g (float[64, 64] a, float[64, 64] b) => (y) { y = MatMul (a, b) }")
    values = KNOBS[CONTRACTION].values
    assert len({written(opened(data, "webgpu", contraction=tile)) for tile in values}) == len(values)
    assert {*values} == {*register_tile.TILES, workgroup_tile.NAME}


# ── by node ───────────────────────────────────────────────────────────────────────────────────────────────────────

LAYERS = """g (float[1, 16, 64, 64] x) => (y) {
    [one] a = Conv <pads = [1, 1, 1, 1]> (x, w)  [two] b = Conv <pads = [1, 1, 1, 1]> (a, v)
    [three] y = Conv <pads = [1, 1, 1, 1]> (b, u) }"""


def layers() -> bytes:
    return built(LAYERS, w=floats(16, 16, 3, 3), v=floats(16, 16, 3, 3), u=floats(8, 16, 3, 3))


def rows(session: Any) -> list[int]:
    """The rows of tiles in a unit of each layer."""
    calls = [c for b in session._native.latest().header["blocks"][1:] for s in b["steps"] for c in s["calls"]]
    return [c["params"][11] for c in calls]


def test_equal_layers_may_be_chosen_for_apart() -> None:
    data, feeds = layers(), {"x": floats(1, 16, 64, 64)}
    labels = [t.node for t in opened(data).profile(feeds)]
    session = opened(data, winograd_tiles={labels[1]: 128, "": 32})
    assert rows(opened(data)) == [4, 4, 4] and rows(session) == [2, 8, 2]
    np.testing.assert_allclose(session.run(None, feeds)[0], zoo.oracle(data, feeds)[0], rtol=1e-3, atol=1e-4)


def test_an_exported_program_is_of_its_choices() -> None:
    tuned = opened(layers(), winograd_tiles=128)
    assert rows(InferenceSession(tuned.export(weights=True))) == [8, 8, 8]


@pytest.mark.parametrize(
    "chosen,message",
    [
        ({"tiles": {}}, "no tuning knob 'tiles'.*winograd_tiles, contraction, attention"),
        ({WINOGRAD_TILES: {"": 64}}, r"winograd_tiles cannot be 64 \(one of \(32, 128\)\)"),
        ({WINOGRAD_TILES: {"": True}}, "cannot be True"),
        ({WINOGRAD_TILES: {"": [32]}}, r"cannot be \[32\]"),
        ({CONTRACTION: {"": 8}}, r"contraction cannot be 8 \(one of \('register_4', .*'workgroup_32'\)\)"),
        ({WINOGRAD_TILES: 32}, "takes values by node, not 32"),
        ({WINOGRAD_TILES: {1: 32}}, "takes values by node"),
        ([32], r"choices cannot be \[32\]"),
    ],
)
def test_what_cannot_be_chosen(chosen: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        InferenceSession(layers(), SessionOptions(choices=chosen))


def test_a_compiled_program_is_chosen_for() -> None:
    data = opened(layers()).export(weights=True)
    with pytest.raises(InvalidInput, match="choices cannot be.*None for a compiled Program"):
        opened(data, winograd_tiles=32)
    with pytest.raises(InvalidInput, match="holds no model to tune"):
        InferenceSession(data).tune({"x": floats(1, 16, 64, 64)})


def test_trials_have_every_value() -> None:
    found = [(knob, value[""]) for trial in trials(["webgpu", "wasm"]) for knob, value in trial.items()]
    assert sorted(found) == sorted((name, value) for name, knob in KNOBS.items() for value in knob.values)
    assert trials(["wasm"]) == [{WINOGRAD_TILES: {"": n}} for n in (32, 128)] and trials(["other"]) == []
    for trial in trials(["webgpu", "wasm"]):
        Choices(trial)


# ── tune ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[tuple[int, ...], tuple[float, list[float]]]]:
    """Given times that replace measured ones: by rows of a unit in the three layers, a run's time and each layer's."""
    times: dict[tuple[int, ...], tuple[float, list[float]]] = {}

    def turns(a: Any, b: Any, *_: Any) -> Any:
        def told(executor: Any) -> Any:
            calls = [c for block in executor.header["blocks"][1:] for s in block["steps"] for c in s["calls"]]
            run, kernels = times[tuple(c["params"][11] for c in calls)]
            found = tuning.Times(run)
            for call, seconds in zip(calls, kernels, strict=True):
                found.kernels[call["node"]] = seconds
            return found

        return told(a), told(b)

    monkeypatch.setattr(tuning, "_turns", turns)
    yield times


X = {"x": np.ones((1, 16, 64, 64), np.float32)}


def test_the_best_value_of_each_kernel_is_chosen(clock: Any) -> None:
    clock.update({
        (4, 4, 4): (10, [4, 4, 2]), (2, 2, 2): (11, [3, 3.5, 3]), (8, 8, 8): (12, [5, 5, 1]),
        (2, 2, 8): (7.5, [3, 3.5, 1]),
    })  # fmt: skip
    session = opened(layers())
    before = session.run(None, X)
    tuned = session.tune(X)
    assert (tuned.before, tuned.after) == (10, 7.5) and tuned.gain == 10 / 7.5 and tuned.took > 0
    one, two, three = [t.node for t in session.profile(X)]
    assert tuned.choices == {WINOGRAD_TILES: {one: 32, two: 32, three: 128}}  # the first two are equal
    assert [(k.nodes, k.before, k.after) for k in tuned.kernels] == [((one, two), 8, 6.5), ((three,), 2, 1)]
    assert rows(session) == [2, 2, 8]  # it goes on so
    np.testing.assert_allclose(session.run(None, X)[0], before[0], rtol=1e-3, atol=1e-4)
    again = InferenceSession(layers(), SessionOptions(choices=tuned.choices))
    assert rows(again) == [2, 2, 8]


def test_kernels_that_gain_alone_are_not_chosen(clock: Any) -> None:
    clock.update({(4, 4, 4): (10, [4, 4, 2]), (2, 2, 2): (9, [3, 3, 2]), (8, 8, 8): (12, [5, 5, 5])})
    clock[2, 2, 4] = (9.9, [4, 4, 2])
    session = opened(layers())
    tuned = session.tune(X)
    assert tuned.choices == {} and tuned.gain == 1 and len(tuned.kernels) == 1 and rows(session) == [4, 4, 4]


SPLIT, *_, APART = KNOBS[ATTENTION].values


def test_kernels_that_one_program_fuses_are_compared_as_a_whole() -> None:
    """The time of attention as one kernel counts against that of its products and softmax together."""
    data = attention_cases.CASES[-1].model(False)
    one, apart = (opened(data, "webgpu", attention=n)._native.latest().program for n in (SPLIT, APART))
    last, (scores, softmax) = (
        'MatMul "result" (opset 20)',
        ('MatMul "scores" (opset 20)', 'Softmax "softmax" (opset 20)'),
    )
    for times, gains in [([2, 2, 2], [((last,), 9, 6)]), ([4, 2, 4], [])]:
        search = tuning.Search(one, ["webgpu"])
        search.next()
        assert search.worth(apart)
        search.measured(
            tuning.Times(10, {last: 9}), tuning.Times(10, dict(zip([scores, softmax, last], times, strict=True)))
        )
        assert [(k.nodes, k.before, k.after) for k in search.kernels] == gains


def test_without_times_of_kernels_that_of_the_run_counts(clock: Any) -> None:
    clock.update({(4, 4, 4): (10, [0, 0, 0]), (2, 2, 2): (9, [0, 0, 0]), (8, 8, 8): (8, [0, 0, 0])})
    session = opened(layers())
    assert session.tune(X).choices == {WINOGRAD_TILES: {"": 128}} and rows(session) == [8, 8, 8]


def test_a_failure_leaves_the_session_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    session = opened(layers())
    monkeypatch.setattr(tuning, "_turns", fails)
    with pytest.raises(KeyboardInterrupt):
        session.tune(X)
    assert rows(session) == [4, 4, 4] and session._native.compiler.settings.choices.chosen == {}
    assert session.run(None, X)[0].shape == (1, 8, 64, 64)


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_tuning_for_real(provider: str) -> None:
    data, feeds = layers(), {"x": floats(1, 16, 64, 64)}
    session = opened(data, provider)
    tuned = session.tune(feeds, seconds=0)
    assert tuned.gain >= 1 and 0 < tuned.after <= tuned.before
    assert all(KNOBS[knob].provider == provider for knob in tuned.choices)
    np.testing.assert_allclose(session.run(None, feeds)[0], zoo.oracle(data, feeds)[0], rtol=1e-3, atol=1e-4)


def test_models_whose_shape_a_value_decides() -> None:
    text = "g (float[1, 16, 24, 24] x, int64[4] s) => (y) { c = Conv (x, w)  y = Reshape (c, s) }"
    data = built(text, w=floats(8, 16, 3, 3))
    feeds = {"x": floats(1, 16, 24, 24), "s": np.array([2, 4, 22, 22])}
    session = opened(data)
    session.tune(feeds, seconds=0)
    np.testing.assert_allclose(session.run(None, feeds)[0], zoo.oracle(data, feeds)[0], rtol=1e-3, atol=1e-4)


def test_models_that_are_compiled_for_dims() -> None:
    """Recompiling after a change reuses the dims that the model is known to need."""
    data = built("g (float[n, c, h, w] x, float[f, c, k, l] v) => (y) { y = Conv (x, v) }")
    feeds = {"x": floats(1, 4, 30, 30), "v": floats(5, 4, 3, 3)}
    session = opened(data)
    for change in (
        lambda: session.tune(feeds, seconds=0),
        lambda: session.set_providers(["CPUExecutionProvider"]),
    ):
        session.run(None, feeds)
        change()
        np.testing.assert_allclose(session.run(None, feeds)[0], zoo.oracle(data, feeds)[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True])
def test_a_time_that_is_none(seconds: Any) -> None:
    with pytest.raises(InvalidInput, match="seconds cannot be"):
        opened(layers()).tune(X, seconds)

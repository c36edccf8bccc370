"""Strings: operators that move and compare them, text operators, and the pass that makes them Host kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from kit.interpret import run
from pyruntime.errors import UnsupportedOp
from pyruntime.frontend import interpreter
from pyruntime.frontend.trace_graph import TensorSpec, trace_graph
from pyruntime.ir import dtype as dt
from pyruntime.ir.kernel import Host
from pyruntime.onnx.load import load
from pyruntime.onnx.weight_values import elements
from pyruntime.passes.lowering.string_kernels import lower_strings
from tests.ops.compare import by_onnx, by_onnxruntime, by_session, check, model, parsed, same

WORDS = np.array([["the", "Quick"], ["brown", "fox"], ["the", ""]], dtype=object)

MOVES = """g (string[a, b] x, bool[a, b] c)
        => (string[b, a] y, string[n, b] z, bool[a, b] e, string[a, b] w, string[m] r) {
    y = Transpose (x)
    z = Gather <axis = 0> (x, at)
    e = Equal (x, word)
    w = Where (c, x, word)
    j = Concat <axis = 0> (x, z)
    r = Reshape (j, flat)
}""".replace("{\n", """{
    at = Constant <value = int64[3] {2, 0, 0}> ()
    flat = Constant <value = int64[1] {-1}> ()
    word = Constant <value = string[1] {"the"}> ()
""", 1)  # fmt: skip


def test_moving_and_comparing() -> None:
    check(parsed(MOVES), {"x": WORDS, "c": np.array([[True, False]] * 3)}, by_onnx)


MOVED = {
    "Slice": "y = Slice (x, start, end, axes, steps)",
    "Slice, then Concat": "s = Slice (x, start, end, axes, steps) y = Concat <axis = 1> (s, s)",
    "Slice, then Tile": "s = Slice (x, start, end, axes, steps) y = Tile (s, steps3)",
    "Slice, then Transpose": "s = Slice (x, start, end, axes, steps) y = Transpose (s)",
}


@pytest.mark.parametrize("name", MOVED)
def test_dims_that_follow_from_named_ones(name: str) -> None:
    """A Program names dims that it computes from the model's. Steps on strings get these beside the symbols."""
    constants = """
        start = Constant <value = int64[2] {-1, 100}> ()
        end = Constant <value = int64[2] {-100, -9}> ()
        axes = Constant <value = int64[2] {-3, 1}> ()
        steps = Constant <value = int64[2] {-1, -2147483647}> ()
        steps3 = Constant <value = int64[3] {2, 1, 2}> ()
    """
    made = parsed(f"g (string[d0, d1, d2] x) => (string[a, b, c] y) {{ {constants} {MOVED[name]} }}")
    x = np.array([f"{n}" for n in range(60)], object).reshape(3, 4, 5)
    assert by_session(made, {"x": x})[0].size
    check(made, {"x": x}, by_onnx)


def test_the_pass_gives_the_same() -> None:
    model_ = parsed(MOVES).SerializeToString()
    specs = {"x": TensorSpec(dt.STRING, (3, 2)), "c": TensorSpec(dt.BOOL, (3, 2))}
    feeds: dict[Any, Any] = {("x",): ((3, 2), WORDS.ravel().tolist()), ("c",): ((3, 2), [True, False] * 3)}
    plain, lowered = (trace_graph(load(model_), specs, elements, {}) for _ in range(2))
    lower_strings(lowered.block)
    steps = [k for k in lowered.block.kernels if isinstance(k, Host)]
    assert len(steps) >= 5 and all(s.fn == "reference" for s in steps)
    assert interpreter.run(plain, elements, feeds) == interpreter.run(lowered, elements, feeds)


def node_model(op: str, x: np.ndarray, outputs: list[str], opset: int = 20, **attrs: Any) -> Any:
    return model([helper.make_node(op, ["x"], outputs, **attrs)], {"x": x}, outputs, opset=opset)


@pytest.mark.parametrize("attrs", [
    {"case_change_action": "UPPER", "stopwords": ["the", "Fox"]},
    {"case_change_action": "LOWER", "stopwords": ["The", "quick"], "is_case_sensitive": 1},
    {"stopwords": ["THE"]},
], ids=str)  # fmt: skip
def test_string_normalizer(attrs: dict[str, Any]) -> None:
    for x in (WORDS[0], WORDS.reshape(1, 6)[:, :5]):
        check(node_model("StringNormalizer", x, ["y"], opset=10, locale="C", **attrs), {"x": x})


@pytest.mark.parametrize(
    "pattern", [r"[a-z]+", r"(?i)the|fox", r"\w{3,4}", r"^t.*e$", "", r"[[:alpha:]]+", r"(t|T|h)*e?", r"(.+)+$"]
)
def test_regex(pattern: str) -> None:
    check(node_model("RegexFullMatch", WORDS, ["y"], pattern=pattern), {"x": WORDS})


@pytest.mark.parametrize("pattern", [r"(a)\1", r"(?=a)", r"(?<!a)b", r"a++", r"\p{Foo}", "("])
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedOp):
        run(node_model("RegexFullMatch", WORDS, ["y"], pattern=pattern).SerializeToString(), {"x": WORDS})


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bool", "int8", "uint8", "int64", "uint64"])
def test_texts_of_numbers(dtype: str) -> None:
    """As onnxruntime writes them, also where categories are looked up by them."""
    x = np.array([1, 0, 2.5, 1 / 3, 65504, 16777216, 123456789, 1e-7, 1e9, 5e-6, 3e38, -1.0, -0.0], np.float64)
    if np.dtype(dtype).kind != "f":
        bounds = [0, 1] if dtype == "bool" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
        x = np.array([1, 0, *bounds, 100], dtype)
    with np.errstate(over="ignore"):
        x = np.array([*x, np.inf, np.nan], dtype) if np.dtype(dtype).kind == "f" else x
    nodes = [
        helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING),
        helper.make_node("LabelEncoder", ["y"], ["z"], domain="ai.onnx.ml", values_int64s=[10, 20, 30, 40],
                         keys_strings=["1", "0", "0.33333333", "INF"], default_int64=-1),
    ]  # fmt: skip
    made = model(nodes, {"x": x}, ["y", "z"], domains={"ai.onnx.ml": 2})
    same(by_session(made, {"x": x}), by_onnxruntime(made, {"x": x}))


@pytest.mark.parametrize("keys", [1, 2, 5, 100])
def test_keys_of_numbers(keys: int) -> None:
    """Unsorted, negative and equal keys; elements between, below and above them."""
    rng = np.random.default_rng(keys)
    table = rng.integers(-3 * keys, 3 * keys, keys)
    x = np.arange(-4 * keys, 4 * keys)
    for kind, dtype in (("int64s", np.int64), ("floats", np.float32)):
        attrs = {f"keys_{kind}": table.astype(dtype).tolist(), "values_int64s": list(range(keys)), "default_int64": -1}
        node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attrs)
        check(model([node], {"x": x.astype(dtype)}, ["y"], domains={"ai.onnx.ml": 2}), {"x": x.astype(dtype)})


@pytest.mark.parametrize("skip", [0, 1, 4, 100])
@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (2, 3), (3, 3)])
def test_tfidf_of_drawn_grams(skip: int, texts: bool, lengths: tuple[int, int]) -> None:
    """Grams that begin alike, that are beginnings of others, and items that no gram or only its end has."""
    rng = np.random.default_rng(3)
    grams = [sorted({tuple(rng.integers(0, 6, n).tolist()) for _ in range(12)}) for n in (1, 2, 3)]
    pool = [item for group in grams for gram in group for item in gram]
    counts = np.cumsum([0, *[len(group) * n for n, group in enumerate(grams, 1)]])[:3].tolist()
    columns = rng.permutation(sum(map(len, grams))).tolist()
    x = rng.integers(0, 8, (3, 17))
    attrs = {"pool_strings": [str(item) for item in pool]} if texts else {"pool_int64s": pool}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=lengths[0],
                            max_gram_length=lengths[1], max_skip_count=skip, ngram_counts=counts,
                            ngram_indexes=columns, **attrs)  # fmt: skip
    feeds = {"x": np.array([[str(v) for v in row] for row in x], object) if texts else x}
    check(model([node], feeds, ["y"], opset=9), feeds)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skip", [0, 2])
def test_tfidf_of_strings(mode: str, skip: int) -> None:
    x = np.array([["a", "b", "a", "c"], ["c", "c", "b", "a"]], dtype=object)
    attrs: dict[str, Any] = {
        "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": skip, "mode": mode, "ngram_counts": [0, 2],
        "ngram_indexes": [0, 1, 2, 3], "pool_strings": ["a", "c", "a", "b", "c", "a"], "weights": [2.0, 0.5, 1.0, 3.0],
    }  # fmt: skip
    check(node_model("TfIdfVectorizer", x, ["y"], opset=9, **attrs), {"x": x})

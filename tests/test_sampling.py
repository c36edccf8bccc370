"""Tokens chosen behind a decoder's logits, against a definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from kit.decoders import TINY, Decoder, feeds
from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import InvalidInput
from pyruntime.onnx import load
from pyruntime.onnx.graph import all_nodes, tensor_type
from pyruntime.onnx.sampling import with_sampling

NAMES = ["temperature", "top_k", "top_p", "random"]


def passed(shape: str, kind: str = "float") -> bytes:
    """Logits as they are fed."""
    text = f"g ({kind}[{shape}] x) => ({kind}[{shape}] logits) {{ logits = Identity (x) }}"
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {text}').SerializeToString()


def sampling(model: Any, output: str = "logits") -> InferenceSession:
    return InferenceSession(model, SessionOptions(sample_from=output))


def how(temperature: float, top_k: int, top_p: float, random: Any) -> dict[str, np.ndarray]:
    return {
        "temperature": np.array(temperature, "f4"), "top_k": np.array(top_k), "top_p": np.array(top_p, "f4"),
        "random": np.atleast_1d(np.array(random, "f4")),
    }  # fmt: skip


def chosen(logits: np.ndarray, temperature: float, top_k: int, top_p: float, random: float) -> int:
    order = np.argsort(-logits, kind="stable")
    if temperature <= 0:
        return int(order[0])
    order = order[: top_k if top_k > 0 else len(order)]
    shares = np.exp((logits[order] - logits[order[0]]) / np.float64(temperature))
    shares /= shares.sum()
    few = 1 + int((np.cumsum(shares)[:-1] < top_p).sum())
    sums = np.cumsum(shares[:few])
    return int(order[min(int((sums <= random * sums[-1]).sum()), few - 1)])


CASES = [
    (0.0, 0, 1.0, 0.99), (0.0, 5, 0.3, 0.0), (1.0, 0, 1.0, 0.37), (1.0, 0, 1.0, 0.999), (0.7, 40, 0.95, 0.5),
    (2.0, 3, 1.0, 0.9), (1.0, 1, 1.0, 0.9), (1.0, 0, 0.0, 0.9), (1.0, 9999, 0.5, 0.7), (0.01, 0, 1.0, 0.6),
    (1.0, -1, 0.9, 0.2), (1e-9, 0, 1.0, 0.999), (1.0, 0, 2.0, 0.8),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("shape", ["n, s, v", "n, v", "n, s, 100"])
def test_against_the_definition(shape: str, case: tuple[float, int, float, float]) -> None:
    session = sampling(passed(shape))
    x = 3 * np.random.default_rng(0).standard_normal((3, 4, 100) if "s" in shape else (3, 100)).astype("f4")
    assert [a.name for a in session.get_inputs()] == ["x", *NAMES]
    assert [(a.name, a.type, a.shape) for a in session.get_outputs()] == [("token", "tensor(int64)", ["n"])]
    *settings, random = case
    (found,) = session.run(None, {"x": x, **how(*settings, [random] * 3)})
    rows = x[:, -1] if x.ndim == 3 else x
    assert found.tolist() == [chosen(row, *settings, random) for row in rows]


@pytest.mark.parametrize("random", [0.0, np.nextafter(np.float32(1), np.float32(0)), 1.0, 7.0])
def test_the_ends(random: float) -> None:
    """Whatever is rounded, what is drawn is one of those that may be."""
    x = np.random.default_rng(0).standard_normal((64, 3000)).astype("f4")
    (found,) = sampling(passed("n, v")).run(None, {"x": x, **how(1, 50, 0.7, [random] * 64)})
    for row, token in zip(x, found, strict=True):
        assert (row > row[token]).sum() <= 50 and (random > 0 or row[token] == row.max())


def test_draws_have_the_shares() -> None:
    session = sampling(passed("n, v"))
    shares = np.array([0.1, 0.4, 0.2, 0.3], "f4")
    x, random = np.repeat(np.log(shares)[None], 1000, 0), (np.arange(1000) + 0.5) / 1000
    (found,) = session.run(None, {"x": x, **how(1, 0, 1, random)})
    assert np.bincount(found).tolist() == [100, 400, 200, 300]
    (found,) = session.run(None, {"x": x, **how(1, 2, 1, random)})
    assert abs(np.bincount(found) - [0, 571, 0, 429]).max() <= 1


def test_equal_logits_give_the_first_when_greedy() -> None:
    x = np.zeros((1, 2, 50), "f4")
    x[0, 1, [7, 9]] = 1
    x[0, 1, 9] = np.nextafter(np.float32(1), np.float32(2))  # by a bit more
    assert sampling(passed("n, s, v")).run(None, {"x": x, **how(0, 0, 1, 0.9)})[0] == 9
    x[0, 1, 9] = 1
    assert sampling(passed("n, s, v")).run(None, {"x": x, **how(0, 0, 1, 0.9)})[0] == 7


def test_halves() -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 60)).astype(np.float16)
    (found,) = sampling(passed("n, s, v", "float16")).run(None, {"x": x, **how(0.8, 10, 0.9, 0.4)})
    assert found.tolist() == [chosen(x[0, -1].astype("f4"), 0.8, 10, 0.9, 0.4)]


@pytest.mark.parametrize("kind", ["fp32", "int4"])
def test_a_decoder(kind: str) -> None:
    """Tokens that are fed back, with the caches where they lie, are those that logits give."""
    data = Decoder(TINY, kind, empty=False).model().SerializeToString()
    ours, plain = sampling(data), InferenceSession(data)
    tokens: dict[int, list[int]] = {}
    for n, session in enumerate((ours, plain)):
        given, found = feeds(TINY, kind, 5, 0), tokens.setdefault(n, [])
        for step in range(12):
            settings = (0.9, 20, 0.95, (step * 0.37) % 1)
            given |= how(*settings) if session is ours else {}
            first, *caches = session.run(None, given)
            found.append(int(first[0]) if session is ours else chosen(first[0, -1], *settings))
            names = [o.name.replace("present", "past") for o in session.get_outputs()[1:]]
            given = {**feeds(TINY, kind, 1, 5 + step), **dict(zip(names, caches, strict=True))}
            given["ids"] = np.array([found[-1:]])
    assert tokens[0] == tokens[1]
    assert any("room" in i for i in ours._native.latest().header["inputs"])


WEIGHT = np.random.default_rng(3).standard_normal((3, 40)).astype("f4")
HEADS = {  # what makes logits of h, what else there is, and whether only the last position is computed
    "a product": ("logits = MatMul (h, w)", "", True),
    "converted": ("a = MatMul (h, w)  b = Cast <to = 11> (a)  logits = Cast <to = 1> (b)", "", True),
    "read elsewhere": ("logits = MatMul (h, w)  more = Neg (logits)", ", float[n, s, v] more", False),
    "an output, too": ("a = MatMul (h, w)  logits = Cast <to = 1> (a)", ", float[n, s, v] a", False),
    "of two activations": ("t = Transpose <perm = [0, 2, 1]> (h)  logits = MatMul (h, t)", "", False),
    "with a bias": ("a = MatMul (h, w)  logits = Add (a, a)", "", False),
}


@pytest.mark.parametrize("name", HEADS)
def test_positions_that_nobody_reads_are_not_computed(name: str) -> None:
    body, outputs, less = HEADS[name]
    text = f"g (float[n, s, 3] x) => (float[n, s, v] logits{outputs}) {{ h = Relu (x)  {body} }}"
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    made.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    data = made.SerializeToString()
    product = next(node for node in with_sampling(load(data), "logits").nodes if node.op == "MatMul")
    assert (product.inputs[0] != "h") is less
    x = np.random.default_rng(0).standard_normal((2, 3 if "two" in name else 5, 3)).astype("f4")
    logits, *others = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    token, *ours = sampling(data).run(None, {"x": x, **how(0.8, 0, 0.9, [0.2, 0.6])})
    assert token.tolist() == [chosen(row, 0.8, 0, 0.9, r) for row, r in zip(logits[:, -1], (0.2, 0.6), strict=True)]
    for got, want in zip(ours, others, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


MASKED = [(0.0, 0, 1.0, 0.9), (1.0, 0, 1.0, 0.4), (0.8, 5, 0.9, 0.5), (1.0, 40, 1.0, 1.0), (1e-9, 3, 1.0, 0.999)]


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
def test_masks(provider: str) -> None:
    """forbid tokens in the rows that have one, alone or with penalties."""
    vocabulary, rng = 70, np.random.default_rng(4)
    options = SessionOptions(sample_from="logits", sample_positions=2, sample_masks=True)
    session = InferenceSession(passed("n, s, 70"), options, [provider])
    assert [(a.name, a.type, a.shape) for a in session.get_inputs()[-2:]] == [
        ("masked", "tensor(int64)", ["masked"]), ("masks", "tensor(int32)", ["masked", 3]),
    ]  # fmt: skip
    x = 3 * rng.standard_normal((2, 3, vocabulary)).astype("f4")
    for rows in ([], [3], [0, 1, 2], [2, 0, 3, 1]):
        allowed = rng.random((len(rows), vocabulary)) < 0.2
        allowed[:1] = np.arange(vocabulary) == 63  # a word whose sign bit alone is set
        bits = np.pad(allowed, ((0, 0), (0, 26)))
        masks = np.packbits(bits, axis=1, bitorder="little").view("<i4").reshape(len(rows), 3)
        logits = x[:, -2:].reshape(4, vocabulary).copy()
        repeated = np.array([[1, token] for token in logits[1].argsort()[-9:]])
        logits[1, repeated[:, 1]] *= np.where(logits[1, repeated[:, 1]] > 0, 1 / 1.5, 1.5).astype("f4")
        for row, one in zip(rows, allowed, strict=True):
            logits[row, ~one] = -np.inf
        for *settings, random in MASKED:
            given = {
                "x": x, **how(*settings, np.full((2, 2), random)), "repetition_penalty": np.array(1.5, "f4"),
                "repeated": repeated, "masked": np.array(rows, "i8"), "masks": masks,
            }  # fmt: skip
            (found,) = session.run(["token"], given)
            for row, one in zip(rows, allowed, strict=True):
                assert one[found.flat[row]]
            if random < 1:
                assert found.ravel().tolist() == [chosen(row, *settings, random) for row in logits]


def test_an_exported_program() -> None:
    session = sampling(passed("n, s, v"))
    x = np.random.default_rng(0).standard_normal((1, 2, 60)).astype("f4")
    given = {"x": x, **how(0.8, 10, 0.9, 0.4)}
    opened = InferenceSession(session.export(weights=True))
    assert opened.run(None, given) == session.run(None, given)


def test_what_is_refused() -> None:
    values = ["(float[n, v] top_p) => (float[n, v] y) { y = Identity (top_p) }",
              "(float[n, v] x) => (float[n, v] y) { top_p = Neg (x) y = Neg (top_p) }",
              "(float[n, v] x) => (float[n, v] y) <float top_p = {2}> { y = Mul (x, top_p) }"]  # fmt: skip
    head = '<ir_version: 10, opset_import: ["" : 17]> g '
    taken = [onnx.parser.parse_model(head + text).SerializeToString() for text in values]
    for model, name, message in [
        (passed("n, v"), "other", 'output "other" does not exist'), (passed("v"), "logits", "cannot be logits"),
        (passed("n, v", "int64"), "logits", "cannot be logits"),
        *[(model, "y", "'top_p' cannot be sampled") for model in taken],
    ]:  # fmt: skip
        with pytest.raises(InvalidInput, match=message):
            sampling(model, name)
    program = InferenceSession(passed("n, v")).export(weights=True)
    with pytest.raises(InvalidInput, match="None for a compiled Program"):
        sampling(program)
    with pytest.raises(InvalidInput, match="sample_masks needs sample_positions"):
        InferenceSession(passed("n, s, v"), SessionOptions(sample_from="logits", sample_masks=True))
    with pytest.raises(InvalidInput, match="sample_from cannot be 3"):
        InferenceSession(passed("n, v"), SessionOptions(sample_from=3))  # type: ignore[arg-type]


_BODY = """q, s, z = DynamicQuantizeLinear (x)  a = DequantizeLinear (q, s, z)
    b, k, v = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (a, a, a, , , n, n)"""
_OPSETS = '"" : 20, "com.microsoft" : 1, "own" : 1'
PLACES = {
    "the graph": (f"{_BODY} logits = Identity (b)", ""),
    "a branch": (
        f"""logits = If (c) <then_branch = one () => (float[n, s, 40] b) {{ {_BODY} }},
            else_branch = two () => (float[n, s, 40] y) {{ y = Identity (x) }}>""",
        "",
    ),
    "a function": (
        "logits = own.f (x, n)",
        f'<domain: "own", opset_import: [{_OPSETS}]> f (x, n) => (b) {{ {_BODY} }}',
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_operators_in_all_parts_of_a_model(place: str) -> None:
    """Rows that depend on each other are noted, and GroupQueryAttention takes texts of several lengths."""
    body, functions = PLACES[place]
    text = f"g (float[n, s, 40] x, bool c, int32[n] n) => (float[n, s, 40] logits) {{ {body} }} {functions}"
    made = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{_OPSETS}]> {text}")
    found = with_sampling(load(made.SerializeToString()), "logits", positions=1)
    types = {value.name: tensor_type(value.type) for value in found.inputs}
    random = types["random"]
    assert random is not None and random.shape == ("n", "positions:1:mixed")
    (attention,) = [node for node in all_nodes(found) if node.op == "GroupQueryAttention"]
    assert attention.attrs["left_padded"] == 1

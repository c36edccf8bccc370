"""Shape arithmetic that uses a dim several times in each layer: Programs and the time to compile them grow with the
number of layers, and both executors compute the dims."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, InvalidModel, ShapeError
from pyruntime.ir import shape as sh
from tests.test_offsets import agree, compare, peer

# layer k makes x(k+1) from xk
KINDS = {
    "padding to a multiple": """
        h{k} = Shape <start = 0, end = 1> (x{k})  a{k} = Add (h{k}, one)  b{k} = Div (a{k}, two)  c{k} = Mul (b{k}, two)
        e{k} = Sub (c{k}, h{k})  p{k} = Max (e{k}, zero)  s{k} = Concat <axis = 0> (zeros, p{k}, zero)
        x{l} = Pad (x{k}, s{k})""",
    "Where": """
        h{k} = Shape <start = 0, end = 1> (x{k})  g{k} = Greater (h{k}, ten)  a{k} = Sub (h{k}, one)
        b{k} = Add (h{k}, two)  w{k} = Where (g{k}, a{k}, b{k})  s{k} = Min (w{k}, h{k})
        x{l} = Slice (x{k}, zero, s{k}, zero)""",
    "Mod": """
        h{k} = Shape <start = 0, end = 1> (x{k})  m{k} = Mod (h{k}, three)  s{k} = Concat <axis = 0> (zeros, m{k}, zero)
        x{l} = Pad (x{k}, s{k})""",
    "elements read in a run": """
        r{k} = ReduceMax <keepdims = 0> (x{k})  i{k} = Cast <to = 7> (r{k})  j{k} = Reshape (i{k}, one)
        m{k} = Mod (j{k}, three)  n{k} = Add (j{k}, m{k})  o{k} = Min (n{k}, ten)  p{k} = Max (o{k}, one)
        x{l} = Slice (x{k}, zero, p{k}, zero)""",
    "sums of both sizes": """
        h{k} = Shape (x{k})  m{k} = Mod (h{k}, three)  t{k} = ReduceSum <keepdims = 1> (h{k})  q{k} = Mod (t{k}, two)
        u{k} = Add (m{k}, q{k})  s{k} = Concat <axis = 0> (zeros, u{k})  x{l} = Pad (x{k}, s{k})""",
}
SIZES = (1, 4, 17, 40)


def model(layer: str, layers: int, end: str = "Identity (x{n})") -> bytes:
    nodes = "\n".join(layer.format(k=k, l=k + 1) for k in range(layers))
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[n, m] x) => (float[p, q] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
         int64[1] ten = {{10}}, int64[2] zeros = {{0, 0}}>
        {{ x0 = Identity (x)  {nodes}  y = {end.format(n=layers)} }}""").SerializeToString()


def feeds(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(rows).integers(1, 5, (rows, 3)).astype(np.float32)}


@pytest.mark.parametrize("kind", KINDS)
def test_programs_grow_as_models_do(kind: str) -> None:
    """Written out, the dims of 24 layers would have a number of operations with over six digits."""
    sizes, start = [], time.process_time()
    for layers in (6, 24):
        session = InferenceSession(model(KINDS[kind], layers))
        theirs = peer(model(KINDS[kind], layers))
        for rows in SIZES:
            np.testing.assert_array_equal(session.run(None, feeds(rows))[0], theirs.run(None, feeds(rows))[0])
        assert not session._native.programs.needs.dims, "it is compiled once for all shapes"
        sizes.append(len(json.dumps(session._native.latest().header)))
    assert sizes[1] < 8 * sizes[0]
    assert time.process_time() - start < 10


@pytest.mark.parametrize("kind", ["Where", "elements read in a run"])
def test_both_executors_compute_them(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = model(KINDS[kind], 12)
    runs = [feeds(rows) for rows in (*SIZES, 17)]
    theirs = peer(data)
    for ours, given in zip(compare(data, runs, tmp_path, monkeypatch), runs, strict=True):
        agree(ours, theirs.run(None, given))


def test_a_file_of_another_format_is_refused() -> None:
    data = InferenceSession(model("x{l} = Neg (x{k})", 2)).export(weights=True)
    for other in (3, 6):
        with pytest.raises(InvalidModel, match=f"has format {other}"):
            InferenceSession(data[:4] + struct.pack("<I", other) + data[8:])


def test_messages_are_short() -> None:
    """They show the values of symbols, and the start of a long dim."""
    session = InferenceSession(model(KINDS["Where"], 20, "Concat <axis = 1> (x{n}, x)"))
    with pytest.raises(ShapeError, match="n = 17") as found:
        session.run(None, feeds(17))
    assert len(str(found.value)) < 1000


def doubled(layers: int) -> tuple[sh.AnyDim, int]:
    """A dim that each layer uses three times, and its value for a = 5, b = 2."""
    a, b = sh.symbol("a"), sh.symbol("b")
    d: sh.AnyDim = a
    value = 5
    for _ in range(layers):
        d = sh.select(sh.compare("lt", d, 50), d + b, sh.floordiv(d, 3) + d % 7)
        value = value + 2 if value < 50 else value // 3 + value % 7
    return d, value


def test_dims_are_graphs() -> None:
    d, value = doubled(2000)  # deeper than Python's recursion
    assert len(sh.operations(d)) == 4 * 2000
    assert {str(s) for s in sh.symbols(d)} == {"a", "b"}
    assert sh.evaluate(d, {s: {"a": 5, "b": 2}[s.name] for s in sh.symbols(d)}) == value
    assert sh.estimate(d) >= 0
    assert len(str(d)) < 500
    assert d == doubled(2000)[0], "equal operations are one object"


def test_large_polynomials() -> None:
    """Sums and products of many terms are operations; what int64 arithmetic would wrap is not computed from dims."""
    dims = [sh.symbol(f"d{n}") for n in range(300)]
    env = {s: n + 1 for n, d in enumerate(dims) for s in sh.symbols(d)}
    assert sh.evaluate(sum(dims), env) == sum(range(1, 301))
    product = sum(dims[:9]) * sum(dims[9:18])
    assert sh.evaluate(product, env) == sum(range(1, 10)) * sum(range(10, 19))
    with pytest.raises(sh.Undecided):
        for _ in range(10):
            product = product * product
    with pytest.raises(sh.Undecided):
        dims[0] * 2**54

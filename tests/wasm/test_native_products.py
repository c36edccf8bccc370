"""Products of few rows by weights of 4 and 8 bits in machine code: what calls reach, and their bits."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper

from kit.machine_code import usable
from pyruntime import InferenceSession, SessionOptions
from pyruntime.providers.wasm.native import codes_function

from .native import system_v
from .test_native_code import EDGES, SIZE, Direct, each_kind


def fits_codes(o: dict[str, int], bits: int, digits: int) -> bool:
    most = {"rows": codes_function.EXTENT, "cols": codes_function.EXTENT, "blocks": codes_function.BLOCKS}
    most |= {"rounds": 16, "last": 16}
    if (
        any(not 1 <= o[name] <= end for name, end in most.items())
        or not 0 <= o["zeros"] <= 1
        or o["last"] > o["rounds"]
    ):
        return False
    panels, rounds = -(-o["cols"] // 8), (o["blocks"] - 1) * o["rounds"] + o["last"]
    work = o["rows"] * panels * o["blocks"] * o["rounds"]
    if min(o["lda"], o["ldb"], o["ldc"]) < 0 or work > codes_function.WORK or o["memories"]:
        return False
    ends = [
        o["a"] % 2**32 + (o["rows"] - 1) * o["lda"] + o["blocks"] * (16 + 32 * digits * o["rounds"]),
        o["b"] % 2**32 + (panels - 1) * o["ldb"] + rounds * 16 * bits,
        o["steps"] % 2**32 + panels * o["blocks"] * 32 * (1 + o["zeros"]),
        o["c"] % 2**32 + (o["rows"] - 1) * o["ldc"] + 4 * o["cols"],
    ]
    return max(ends) <= SIZE


@each_kind
@system_v
@pytest.mark.parametrize(("bits", "digits"), [(4, 1), (4, 2), (8, 1), (8, 2)])
def test_products_by_codes_reach_nothing_but_their_memory(kind: str, bits: int, digits: int) -> None:
    """As in test_native_code.py. A step of 0 means that a block of a row has floats."""
    codes, rng = Direct(kind, f"codes{bits}x{digits}"), np.random.default_rng(3)
    usual = {"blocks": 3, "rounds": 2, "last": 1, "ldc": 128, "memories": 0}
    usual |= {"lda": 3 * (16 + 64 * digits), "ldb": 5 * 16 * bits}
    done = 0
    for turn in range(2000):
        rows, cols = 1 + turn % 10, (7, 8, 13, 16, 17, 29)[turn // 10 % 6]
        operands = dict(usual, rows=rows, cols=cols, zeros=turn % 2)
        sizes = {"a": rows * usual["lda"], "b": 4 * usual["ldb"], "steps": 4 * 3 * 64, "c": rows * usual["ldc"]}
        for name, size in sizes.items():
            operands[name] = int(rng.integers(0, SIZE - size + 1)) if turn % 3 else SIZE - size
        for name in rng.choice(list(operands), int(rng.integers(0, 3)), replace=False):
            around = operands[name] + int(rng.integers(-9, 10))
            operands[name] = int(rng.choice([*EDGES, around]))
        operands["memories"] &= 0xFF
        wanted = fits_codes(operands, bits, digits)
        codes.memory[:] = 0xA5
        if turn % 4 == 0:
            codes.memory[operands["a"] % SIZE :][:4] = 0
        before = codes.memory.copy()
        assert codes(**operands) == wanted, operands
        written = np.zeros(SIZE, bool)
        for row in range(operands["rows"] if wanted else 0):
            at = operands["c"] % 2**32 + row * operands["ldc"]
            written[at : at + 4 * operands["cols"]] = True
        assert not ((codes.memory != before) & ~written).any(), operands
        done += wanted
    assert 300 < done < 1800


@each_kind
def test_products_by_codes_have_the_bits_of_webassembly(kind: str) -> None:
    """One row, at the edges of panels and blocks of k. Blocks with elements that are no codes are added in another
    order, and several rows are quantised where WebAssembly has floats: of the codes' accuracy."""
    rng = np.random.default_rng(6)
    cases = list(itertools.product((16, 17, 33, 100), (7, 8, 9, 40), (4, 8), (16, 32), (0, 4)))[::9]
    for turn, (k, n, bits, size, level) in enumerate(cases):
        case = Case(k, n, bits, size, level, zeros=turn % 3 == 0, bias=n == 9)
        data = nbits_model(case, rng)
        sessions = [InferenceSession(data, SessionOptions(native_code=code)) for code in (kind, False)]
        for m in (1, 2, 3, 4, 8, 9)[: 1 if turn % 3 else 6]:
            x = rng.standard_normal((m, k)).astype(np.float32)
            if n == 40:
                x[0, :3] = ((1e-30, 0, 2), (np.inf, np.nan, 1))[turn % 2]
            got, want = (session.run(None, {"x": x})[0] for session in sessions)
            if m == 1 and n != 40:
                np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32), str((case, m)))
            else:
                relative, absolute = (1e-5, 1e-5) if m == 1 else (1e-3, 1e-3 * k**0.5)
                np.testing.assert_allclose(got, want, relative, absolute, err_msg=str((case, m)))


@pytest.mark.parametrize("kind", [*usable(), False])
def test_rows_of_a_batch_have_the_bits_that_they_have_alone(kind: str | bool) -> None:
    """At the edges of tiles and panels, with blocks of some rows that stay floats; in WebAssembly where an element
    of a row may be one int16."""
    rng = np.random.default_rng(7)
    cases = list(itertools.product((16, 100, 160), (7, 16, 17, 40), (4, 8), (16, 32), (0, 4)))[::5]
    for turn, (k, n, bits, size, level) in enumerate(cases):
        case = Case(k, n, bits, size, level if kind else 4, zeros=turn % 3 == 0, bias=n == 17)
        session = InferenceSession(nbits_model(case, rng), SessionOptions(native_code=kind))
        x = rng.standard_normal((16, k)).astype(np.float32)
        x[2], x[3, :3], x[5, 1], x[6, -1], x[12, 0] = 0, 1e-30, np.inf, np.nan, 1e-30
        alone = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
        for m in (*range(2, 10), 15, 16):
            got = session.run(None, {"x": x[16 - m :]})[0]
            np.testing.assert_array_equal(got.view(np.uint32), alone[16 - m :].view(np.uint32), str((case, m)))


class Case(NamedTuple):
    """A product by quantised weights (com.microsoft.MatMulNBits)."""

    k: int
    n: int
    bits: int
    size: int
    level: int
    zeros: bool
    bias: bool


def nbits_model(case: Case, rng: np.random.Generator) -> bytes:
    blocks = -(-case.k // case.size)
    given = {
        "w": rng.integers(0, 256, (case.n, blocks, case.size * case.bits // 8)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.02, (case.n, blocks)).astype(np.float32),
        "z": rng.integers(0, 256, (case.n, -(-blocks * case.bits // 8))).astype(np.uint8) if case.zeros else None,
        "": None,
        "b": rng.standard_normal(case.n).astype(np.float32) if case.bias else None,
    }
    names = ["x", *[name if value is not None else "" for name, value in given.items()]]
    node = helper.make_node(
        "MatMulNBits", names, ["y"], domain="com.microsoft", K=case.k, N=case.n, bits=case.bits, block_size=case.size,
        accuracy_level=case.level,
    )  # fmt: skip
    x, y = (helper.make_tensor_value_info(name, 1, ["M", size]) for name, size in (("x", case.k), ("y", case.n)))
    weights = [numpy_helper.from_array(value, name) for name, value in given.items() if value is not None]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()

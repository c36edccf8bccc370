"""Machine code: the processor's features, both calling conventions, and what a call reaches."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, SessionOptions
from pyruntime.errors import ExecutionError, InvalidInput
from pyruntime.providers.wasm.native import block_function, function, kinds, pages
from pyruntime.providers.wasm.native.x86 import R8, RAX, RCX, RDI, RDX, RSP, XMM, Assembler, Memory
from pyruntime.providers.wasm.printer.assembler import Module
from pyruntime.providers.wasm.printer.native_imports import BLOCK, BLOCKS, FUNCTIONS, import_into
from pyruntime.providers.wasm.printer.native_imports import function as imported
from pyruntime.providers.wasm.schedules.arithmetic import Arithmetic
from pyruntime.providers.wasm.wasmtime_host import WasmHost

from .native import EDGES, SIZE, Direct, each_kind, needs_code, system_v, usable

USABLE = usable()
CACHES = (pages.available, pages._identify, pages._written)
OF_BLOCKS = [(kind, name) for kind in USABLE for name in pages.native_code(kind).functions if name in BLOCKS.values()]
each_block = pytest.mark.parametrize(("kind", "name"), OF_BLOCKS)


@needs_code
@pytest.mark.skipif(not os.path.exists("/proc/cpuinfo"), reason="reads /proc/cpuinfo")
def test_features_are_those_that_the_system_reports() -> None:
    with open("/proc/cpuinfo") as file:
        flags = set(next(line for line in file if line.startswith("flags")).split())
    want = [name for name, needs in (("avx512", {"avx512f"}), ("avx2", {"avx2", "fma", "bmi2"})) if needs <= flags]
    assert want == USABLE


# ── the block function ───────────────────────────────────────────────────────────────────────────────────────────────

WORDS = len(BLOCK)


def fits(operands: dict[str, int], lanes: int) -> bool:
    """Whether a call reaches only bytes of the memory, in Python's integers."""
    o = {name: operands.get(name, 0) for name in BLOCK}
    extents = [o[name] for name in ("lda", "ldb", "ldc", "row", "col", "k", "step")]
    if min(extents) < 0 or not (0 < o["rows"] <= block_function.EXTENT and 0 < o["cols"] <= block_function.EXTENT):
        return False
    if o["epilogue"] & 3 == 3 or o["k"] > block_function.LENGTH or o["k"] * o["rows"] * o["cols"] > block_function.WORK:
        return False
    ends = [
        o["a"] % 2**32 + (o["rows"] - 1) * o["lda"] + 4 * o["k"],
        o["b"] % 2**32 + (-(-o["cols"] // 8) - 1) * o["ldb"] + (o["k"] - 1) * o["step"] + 32,
        o["c"] % 2**32 + (o["rows"] - 1) * o["ldc"] + 4 * o["cols"],
    ]
    if o["epilogue"] & 3:
        last = o["row"] + o["rows"] if o["epilogue"] & 3 == 1 else o["col"] + o["cols"]
        ends.append(o["bias"] % 2**32 + 4 * last)
    if o["scratch"] % 2**32:
        ends.append(o["scratch"] % 2**32 + 8 * lanes * o["k"])
    return min(ends) >= 0 and max(ends) <= SIZE


@each_block
@system_v
def test_a_call_reaches_nothing_but_its_memory(kind: str, name: str) -> None:
    """Random operands around what fits: the result says whether they fit, and no byte outside of C changes."""
    block, rng = Direct(kind, name), np.random.default_rng(3)
    lanes = 16 if kind == "avx512" and (name == "block" or pages.has_vnni()) else 8
    usual = {"lda": 64, "ldb": 512, "ldc": 160, "k": 16, "cols": 40, "rows": 13, "flags": 3, "memories": 0}
    done = 0
    for turn in range(3000):
        operands = dict(usual, epilogue=int(rng.integers(0, 16)), row=int(rng.integers(0, 3)), col=8, step=32)
        operands["rows"] = 13 if turn % 5 else int(rng.integers(1, 4))
        if turn % 2:  # rows of B in place, and a copy of some columns
            operands |= {"ldb": 32, "step": 160, "scratch": int(rng.integers(1, SIZE - 16 * 128 + 1))}
        for name, size in (("a", 13 * 64), ("b", 5 * 512), ("c", 13 * 160), ("bias", 256)):
            operands[name] = int(rng.integers(0, SIZE - size + 1)) if turn % 3 else SIZE - size
        for name in rng.choice(list(operands), int(rng.integers(0, 3)), replace=False):
            around = operands[name] + int(rng.integers(-9, 10))
            operands[name] = int(rng.choice([*EDGES, around]))
        operands["memories"] &= 0xFF
        wanted = fits(operands, lanes) and operands["memories"] == 0
        before = block.memory.copy()
        assert block(**operands) == wanted, operands
        at, step = operands["c"] % 2**32, operands["ldc"]
        written = np.zeros(SIZE, bool)
        for row in range(operands["rows"] if wanted else 0):
            written[at + row * step : at + row * step + 4 * operands["cols"]] = True
        if wanted and (scratch := operands.get("scratch", 0) % 2**32):
            written[scratch : scratch + 8 * lanes * operands["k"]] = True
        changed = before != block.memory
        assert not (changed & ~written).any(), operands
        done += wanted
    assert 500 < done < 2500


@each_kind
@system_v
def test_memories_are_told_apart(kind: str) -> None:
    """Each operand is in its own memory, as large as it needs; one byte less is refused."""
    block = Direct(kind)
    a, b, c, bias = (
        np.float32([[2, 3]]),
        np.float32(range(16)).reshape(2, 8),
        np.zeros((1, 8), np.float32),
        np.ones(8, np.float32),
    )
    held = {1: a, 2: b, 3: c, 255: bias}
    usual = {"k": 2, "cols": 8, "rows": 1, "flags": 3, "epilogue": 2, "step": 32, "memories": 0xFF030201}
    for short in (0, *held):
        for number, array in held.items():
            block.environment[2 + 2 * number : 4 + 2 * number] = array.ctypes.data, array.nbytes - (number == short)
        assert block(**usual) == (short == 0)
    np.testing.assert_array_equal(c, a @ b + 1)
    assert block(**dict(usual, memories=0xFF030204)) == 0  # there is no memory 4


@each_block
@system_v
def test_it_declines_when_the_host_stops(kind: str, name: str) -> None:
    block = Direct(kind, name)
    operands = {"lda": 64, "ldb": 512, "ldc": 160, "k": 16, "cols": 40, "rows": 13, "flags": 3, "c": 8192, "step": 32}
    assert block(**operands) == 1
    block.environment[1] = 1
    before = block.memory.copy()
    assert block(**operands) == 0
    assert (before == block.memory).all()


@each_kind
@system_v
@pytest.mark.parametrize("windows", [False, True])
def test_calling_conventions(kind: str, windows: bool) -> None:
    """A caller that fills what the convention lets it keep finds it unchanged. Windows's is called by a bridge."""
    saved, kept = function.SAVED, function.SAVED + (function.WINDOWS_SAVED if windows else ())
    target = pages.executable(block_function.BlockFunction(kinds.KINDS[kind], windows).write())
    code, words = Assembler(), (ctypes.c_uint64 * 64)()
    for register in saved:
        code.push(register)
    code.constant("sub", RSP, 8)
    code.op("mov", RAX, RCX)  # the address of `words`
    code.op("store", RAX, Memory(RSP))
    if windows:
        code.op("mov", RCX, RDI)
        code.op("mov", R8, RDX)
    for n, register in enumerate(kept):
        code.op("mov", register, Memory(RAX, 8 + 8 * n))
    for n in range(6, 16) if windows else ():
        code.vector("vmovups", XMM[n], Memory(RAX, 128 + 16 * (n - 6)))
    code.op("mov", RAX, Memory(RAX))
    code.data(b"\xff\xd0")  # call rax
    code.op("mov", RAX, Memory(RSP))
    for n, register in enumerate(kept):
        code.op("store", register, Memory(RAX, 8 + 8 * n))
    for n in range(6, 16) if windows else ():
        code.vector("store", XMM[n], Memory(RAX, 128 + 16 * (n - 6)))
    code.constant("add", RSP, 8)
    for register in reversed(saved):
        code.pop(register)
    code.constant("mov", RAX, 0)
    code.ret()
    words[0] = target
    words[1:] = [0x1111111111111111 * (n % 15 + 1) for n in range(63)]
    before = list(words)
    block = Direct(kind, address=pages.executable(code.to_bytes()))
    # the fourth argument, the number of operands, becomes the address of `words`
    kind_of_call = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 4)
    bridge = kind_of_call(ctypes.cast(block.code, ctypes.c_void_p).value)
    block.code = lambda environment, caller, values, _: bridge(environment, caller, values, ctypes.addressof(words))
    assert block(lda=64, ldb=512, ldc=160, k=16, cols=40, rows=13, flags=3, c=8192, epilogue=13, step=32) == 1
    assert list(words) == before


@each_kind
@system_v
def test_rows_do_not_depend_on_their_tile(kind: str) -> None:
    """The bits of an element are the same in a block of any height and width."""
    block, rng = Direct(kind), np.random.default_rng(0)
    view = block.memory.view(np.float32)
    view[:] = rng.standard_normal(len(view))
    whole = {"lda": 76, "ldb": 19 * 32, "ldc": 264, "k": 19, "cols": 66, "rows": 27, "flags": 3, "b": 2400, "c": 8192}
    whole["step"] = 32
    assert block(**whole) == 1
    want = view[2048 : 2048 + 27 * 66].copy().reshape(27, 66)
    columns = (1, 7, 8, 9, 16, 17, 24, 31, 32)
    for rows, cols in [*itertools.product(range(1, 27), columns), *itertools.product((1, 2), (63, 64, 65, 66))]:
        view[2048:] = 7
        assert block(**dict(whole, rows=rows, cols=cols)) == 1
        got = view[2048 : 2048 + 27 * 66].reshape(27, 66)
        np.testing.assert_array_equal(got[:rows, :cols], want[:rows, :cols])
        assert (got[:, cols:] == 7).all()
        assert (got[rows:] == 7).all()


@each_kind
@system_v
def test_rows_of_b_in_place(kind: str) -> None:
    """The same bits as by panels, with and without a copy, at the edges of tiles and of k."""
    block, rng = Direct(kind), np.random.default_rng(0)
    view = block.memory.view(np.float32)
    view[:] = rng.standard_normal(len(view))
    for rows, cols, k in itertools.product((1, 2, 6, 7, 12, 13, 25), (1, 8, 9, 16, 17, 32, 33), (0, 1, 4, 7)):
        panels = np.zeros((-(-cols // 8) * 8, k), np.float32)
        panels[:cols] = view[600 : 600 + 40 * k].reshape(k, 40)[:, :cols].T
        panels = panels.reshape(len(panels) // 8, 8, k).swapaxes(1, 2).reshape(-1)
        view[900 : 900 + len(panels)] = panels
        usual = {"lda": 4 * k, "ldc": 4 * cols, "k": k, "cols": cols, "rows": rows, "flags": 3, "c": 8192}
        results = []
        in_place = {"b": 2400, "ldb": 32, "step": 160}
        for b in ({"b": 3600, "ldb": 32 * k, "step": 32}, in_place, in_place | {"scratch": 6144}):
            assert block(**usual, **b) == 1
            results.append(view[2048 : 2048 + rows * cols].copy())
        np.testing.assert_array_equal(results[1], results[0])
        np.testing.assert_array_equal(results[2], results[0])


@each_block
@system_v
def test_sums_of_integers_are_exact(kind: str, name: str) -> None:
    """At the ends of the codes' ranges, where sums of two products exceed int16, and at each edge of the tiles."""
    arithmetic = next(Arithmetic[key] for key, each in BLOCKS.items() if each == name)
    if arithmetic is Arithmetic.FUSED:
        return
    of = {Arithmetic.INT16: (np.int16, np.int16), Arithmetic.INT8: (np.int8, np.uint8)}
    block, rng, types = Direct(kind, name), np.random.default_rng(2), of.get(arithmetic, (np.uint8, np.int8))
    codes = arithmetic.codes
    for rows, cols, k in itertools.product((1, 2, 5, 6, 7, 12, 13), (1, 7, 8, 9, 16, 17, 31, 32, 33), (0, 1, 4, 5)):
        a, b = (
            rng.choice([ends.min, ends.min + 1, 0, ends.max], (n, k * codes)).astype(t)
            for t, n, ends in zip(types, (rows, cols), map(np.iinfo, types), strict=True)
        )
        if arithmetic is Arithmetic.INT16:
            b[b == -(2**15)] = 0  # two products of this code by itself exceed int32
        panels = np.zeros((-(-cols // 8) * 8, k * codes), types[1])
        panels[:cols] = b
        panels = panels.reshape(len(panels) // 8, 8, k, codes).swapaxes(1, 2)
        for at, data in ((0, a), (2048, panels)):
            raw = np.frombuffer(data.tobytes(), np.uint8)
            block.memory[at : at + len(raw)] = raw
        c = block.memory[8192 : 8192 + 4 * rows * cols].view(np.int32).reshape(rows, cols)
        c[:] = rng.integers(-(2**31), 2**31, c.shape)
        before = c.copy()
        want = a.astype(np.int64) @ b.T.astype(np.int64)
        operands = {"lda": 4 * k, "ldb": 32 * k, "ldc": 4 * cols, "k": k, "cols": cols, "rows": rows, "b": 2048}
        operands["step"] = 32
        assert block(**operands, c=8192, flags=3, epilogue=12) == 1
        np.testing.assert_array_equal(c, want.astype(np.int32))
        c[:] = before
        assert block(**operands, c=8192, flags=2) == 1
        np.testing.assert_array_equal(c, (before + want).astype(np.int32))


@pytest.mark.skipif("avx512" not in USABLE, reason="the processor has no avx512")
def test_integers_without_vnni() -> None:
    """A processor with AVX-512 and without VNNI multiplies integers by AVX2."""
    code = pages.NativeCode(kinds.AVX512, vnni=False)
    assert {"block_int16"} == {name for name in code.functions if "int" in name}
    assert code.address("block_int16") == pages.NativeCode(kinds.AVX2, vnni=False).address("block_int16")


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


TEXT = """<ir_version: 10, opset_import: ["" : 20]> g (float[M, 40] a, float[40, 50] b) => (float[M, 50] y) {
    c = MatMul (a, b)  y = Relu (c) }"""
MODEL = onnx.parser.parse_model(TEXT).SerializeToString()


def product(**options: object) -> tuple[InferenceSession, np.ndarray]:
    session = InferenceSession(MODEL, SessionOptions(**options))
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((30, 40), np.float32), rng.standard_normal((40, 50), np.float32)
    y = session.run(None, {"a": a, "b": b})[0]
    np.testing.assert_allclose(y, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-5)
    return session, y


def imports(session: InferenceSession) -> bool:
    executor = session._native.latest()
    return b"\x03env\x05block\x00" in executor.program.part(executor.header["modules"]["wasm"])


@each_kind
@pytest.mark.parametrize("threads", [1, 2])
def test_explain_names_the_instruction_set(kind: str, threads: int) -> None:
    session, y = product(native_code=kind, intra_op_num_threads=threads)
    assert session.explain()["native_code"] == kind
    assert imports(session)
    np.testing.assert_allclose(product(native_code=False)[1], y, rtol=1e-4, atol=1e-5)


@needs_code
def test_without_native_code() -> None:
    session, _ = product(native_code=False)
    assert session.explain()["native_code"] == "none: the option native_code is False"
    assert not imports(session)


@needs_code
@pytest.mark.parametrize(("value", "want"), [
    ("", USABLE[0] if USABLE else ""), ("avx2", "avx2"), ("off", "none: PYRUNTIME_NATIVE_CODE is off"),
    ("sse", "none: PYRUNTIME_NATIVE_CODE is 'sse', and not off, avx512 or avx2"),
])  # fmt: skip
def test_the_environment(value: str, want: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pages.VARIABLE, value)
    assert product()[0].explain()["native_code"] == want


@needs_code
def test_a_system_that_refuses_executable_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(code: bytes) -> int:
        raise pages.NoNativeCode("the system refuses executable memory: Permission denied")

    monkeypatch.delenv(pages.VARIABLE, raising=False)
    monkeypatch.setattr(pages, "executable", refuse)
    for cached in CACHES:
        cached.cache_clear()
    try:
        session, _ = product()
        assert session.explain()["native_code"] == "none: the system refuses executable memory: Permission denied"
        assert not imports(session)
    finally:
        for cached in CACHES:
            cached.cache_clear()


def test_a_processor_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(pages.VARIABLE, raising=False)
    monkeypatch.setattr(pages, "available", lambda: (kinds.AVX2,))
    assert product(native_code="avx512")[0].explain()["native_code"] == "none: the processor has no avx512"
    monkeypatch.setattr(pages, "available", tuple)
    assert product()[0].explain()["native_code"] == "none: the processor has no AVX2"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.undo()


def test_the_option_is_checked() -> None:
    with pytest.raises(InvalidInput, match="native_code cannot be 'sse'"):
        product(native_code="sse")


@needs_code
def test_pages_are_not_writable() -> None:
    """Writing to machine code ends a process."""
    text = """
import ctypes
from pyruntime.providers.wasm.native import pages
print("made", flush=True)
ctypes.memset(pages.native_code().address("block"), 0, 1)
print("written")"""
    environment = {name: value for name, value in os.environ.items() if name != pages.VARIABLE}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout, done.returncode == 0) == ("made\n", False)


# ── hostile modules ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_import_of_another_type_is_refused() -> None:
    """The machine code would read operands that do not exist."""
    for params, results in (
        ([], []),
        (["i32"] * (WORDS - 1), ["i32"]),
        (["i32"] * WORDS, []),
        (["i64"] * WORDS, ["i32"]),
    ):
        host, module = WasmHost(cache=None, native=True), Module()
        module.imported("block", params, results)
        with pytest.raises(ExecutionError, match="does not load"):
            host.load(module.to_bytes())
        host.close()


def test_any_operands_in_a_module() -> None:
    """A module that passes on what it gets: declined calls leave a run and the host intact, with and without code."""
    for has_code in (True, False):
        host, module = WasmHost(cache=None, native=has_code), Module()
        import_into(module, FUNCTIONS)
        f = module.function("f", ["i32"] * WORDS, ["i32"])
        f.call(imported(module, "block"), *f.params)
        block = host.load(module.to_bytes())["f"]
        rng = np.random.default_rng(5)
        for _ in range(2000):
            operands = rng.choice([0, 1, 8, 64, 4096, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1], WORDS)
            assert block(*map(int, operands)) in (0, 1)
        usual = dict.fromkeys(BLOCK, 0) | {"rows": 1, "cols": 1, "flags": 3, "c": 65532}
        assert block(*usual.values()) == (host.native.code is not None)
        assert block(*(usual | {"c": 65533}).values()) == 0
        host.close()

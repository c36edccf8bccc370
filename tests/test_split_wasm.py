"""scripts/split_wasm.py: a module split in two behaves like the whole one, however its functions are divided."""

from __future__ import annotations

import base64
import itertools
import subprocess
from typing import Any

import pytest
import wasmtime

from kit.chromium import ROOT
from scripts.split_wasm import WARM_LATER, WARM_UP, Splitter, numbers, ranges
from scripts.wasm_data import parted, tables

WHOLE = wasmtime.wat2wasm("""(module
  (type $unary (func (param i32) (result i32)))
  (type $nothing (func))
  (import "env" "add" (func $add (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $count (mut i32) (i32.const 0))
  (global $start i32 (i32.const 8))
  (table 2 funcref)
  (elem (i32.const 0) $even $odd)
  (data (i32.const 8) "\\05")
  (func $even (export "even") (param i32) (result i32)
    (if (result i32) (local.get 0) (then (call $odd (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 1))))
  (func $odd (param i32) (result i32) (local i64)
    (call $counted)
    (if (result i32) (local.get 0) (then (call $even (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 0))))
  (func $counted (type $nothing) (global.set $count (call $add (global.get $count) (i32.const 1))))
  (func (export "counts") (result i32) (global.get $count))
  (func (export "at") (param i32 f64 i64 f32) (result f64)
    (f64.add (local.get 1) (f64.convert_i32_s
      (call_indirect (type $unary) (local.get 0) (i32.load8_u (global.get $start))))))
)""")
COUNT = 5
UNUSED = [used for n in range(1, COUNT) for used in itertools.combinations(range(COUNT), n)]


class Halves:
    """The primary of a split module, with the secondary at hand."""

    def __init__(self, primary: bytes, secondary: bytes) -> None:
        self.store = wasmtime.Store()
        self.imports: dict[tuple[str, str], Any] = {("env", "add"): self.function("ii", "i", lambda a, b: a + b)}
        self.exports = self.instance(primary)
        self.secondary, self.loads = secondary, 0
        shared = {name: self.exports[name] for name in self.exports if name.startswith("split ")}
        self.imports |= {("split", name): value for name, value in shared.items()}
        *_, self.slots = (value for value in shared.values() if isinstance(value, wasmtime.Table))
        self.slots.set(self.store, 0, self.function("", "", self.load))

    def function(self, params: str, results: str, act: Any) -> wasmtime.Func:
        kinds = [[wasmtime.ValType.i32() for _ in letters] for letters in (params, results)]
        return wasmtime.Func(self.store, wasmtime.FuncType(*kinds), act)

    def instance(self, data: bytes) -> Any:
        module = wasmtime.Module(self.store.engine, data)
        wanted = [self.imports[i.module, i.name] for i in module.imports]
        return wasmtime.Instance(self.store, module, wanted).exports(self.store)

    def load(self) -> None:
        self.loads += 1
        self.instance(self.secondary)
        self.slots.set(self.store, 0, self.function("", "", lambda: None))

    def call(self, name: str, *args: Any) -> Any:
        return self.exports[name](self.store, *args)


@pytest.mark.parametrize("used", UNUSED, ids=ranges)
def test_halves_do_what_the_whole_does(used: tuple[int, ...]) -> None:
    """Recursion across the halves, a global that changes, the module's own table, an import, four types."""
    halves = Halves(*Splitter(WHOLE).split(set(used), lambda name: True))
    assert halves.loads == 0
    assert [halves.call("even", n) for n in range(6)] == [1, 0, 1, 0, 1, 0]
    assert halves.call("counts") == 9
    with pytest.raises(wasmtime.Trap, match="undefined element"):
        halves.call("at", 3, 0.5, 1, 2.0)
    halves.exports["memory"].write(halves.store, b"\1", 8)
    assert halves.call("at", 3, 0.5, 1, 2.0) == 1.5
    assert halves.loads == 1


@pytest.mark.parametrize("used", [(0, 1, 2, 3), (0, 4), (1, 2)], ids=ranges)
def test_warm_up_does_nothing_that_is_seen(used: tuple[int, ...]) -> None:
    """Four types, recursion across the halves; hot functions that the primary lacks are passed over."""
    halves = Halves(*Splitter(WHOLE).split(set(used), lambda name: True, hot={WARM_UP: [4, 2], WARM_LATER: [1, 0]}))
    halves.call(WARM_UP)
    halves.call(WARM_LATER)
    assert halves.loads == 0
    assert [halves.call("even", n) for n in range(6)] == [1, 0, 1, 0, 1, 0]
    halves.exports["memory"].write(halves.store, b"\1", 8)
    assert halves.call("at", 3, 0.5, 1, 2.0) == 1.5 and halves.call("counts") == 11


OPTIMISED = """
const optimised = (f) => %IsTurboFanFunction(f);
const make = () => new WebAssembly.Instance(module, { env: { add: (a, b) => a + b } }).exports;
const module = new WebAssembly.Module(Uint8Array.from(Buffer.from(process.argv[1], 'base64')));
const { even, counts } = make();
even(3);
make()[process.argv[2]]();
const until = performance.now() + 20000;
while (!optimised(even) && performance.now() < until) await new Promise((done) => setTimeout(done, 10));
console.log(optimised(even), optimised(counts), even(2), counts());
"""


@pytest.mark.parametrize("name", [WARM_UP, WARM_LATER])
def test_v8_optimises_what_is_hot(name: str) -> None:
    """V8 optimises hot functions ahead, with feedback from another instance, and leaves other functions unchanged."""
    primary, _ = Splitter(WHOLE).split({0, 1, 2, 3}, lambda name: True, hot={name: [0]})
    command = ["node", "--allow-natives-syntax", "--input-type=module", "-e", OPTIMISED, base64.b64encode(primary)]
    made = subprocess.run([*command, name], check=True, capture_output=True)
    assert made.stdout.split() == [b"true", b"false", b"1", b"3"]


def test_the_hottest() -> None:
    """Hot functions are ranked by calls and size; the smallest are skipped."""
    splitter = Splitter(PYODIDE.read_bytes())
    sizes = [len(body) for body in splitter.bodies]
    small, one, other = (
        sizes.index(min(sizes)),
        sizes.index(max(sizes)),
        next(n for n, s in enumerate(sizes) if s > 300),
    )
    calls = {small: 10**9, one: 10, other: 10 * sizes[one] // sizes[other] - 1}
    assert splitter.hottest(calls) == [one, other]


def test_only_what_is_not_used_loads() -> None:
    halves = Halves(*Splitter(WHOLE).split({0, 1, 2}, lambda name: True))
    assert halves.call("even", 4) == 1 and halves.loads == 0
    assert halves.call("counts") == 2 and halves.loads == 1


def test_exports_are_those_asked_for() -> None:
    primary, _ = Splitter(WHOLE).split({0}, {"even"}.__contains__)
    names = [export.name for export in wasmtime.Module(wasmtime.Engine(), primary).exports]
    assert [name for name in names if not name.startswith("split ")] == ["even"]


OTHERS = {"module": (WHOLE + b"\0\2\1x", {0}, []), "profile": (WHOLE, {0, 1}, []), "data": (WHOLE, {0}, [range(9)])}


@pytest.mark.parametrize(("other", "used", "moved"), OTHERS.values(), ids=OTHERS)
def test_halves_of_two_versions_do_not_link(other: bytes, used: set[int], moved: list[range]) -> None:
    """The other module has one more custom section, another profile, or its data at other addresses."""
    primary, _ = Splitter(WHOLE).split({0}, lambda name: True)
    _, secondary = Splitter(other).split(used, lambda name: True, moved)
    with pytest.raises(KeyError, match="split "):
        Halves(primary, secondary).load()


def test_what_is_called_is_noted() -> None:
    halves = Halves(*Splitter(WHOLE).split({0}, lambda name: True))
    exports = halves.instance(Splitter(WHOLE).instrumented())
    exports["even"](halves.store, 3)
    assert [exports[f"called {n}"].value(halves.store) for n in range(COUNT)] == [2, 2, 2, 0, 0]


def test_profiles() -> None:
    assert ranges([3, 1, 2, 7]) == "1-3 7" and numbers("1-3 7") == {1, 2, 3, 7}


# ── data ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

PYODIDE = ROOT / "node_modules" / "pyodide" / "pyodide.asm.wasm"
LISTED = (ROOT / "scripts" / "python_data.txt").read_text()


def test_data_comes_with_the_functions_that_read_it() -> None:
    halves = Halves(*Splitter(WHOLE).split({0, 1, 2, 3}, lambda name: True, [range(8, 9)]))
    assert halves.exports["memory"].read(halves.store, 0, 16) == bytes(16)
    halves.exports["memory"].write(halves.store, b"\1", 9)
    with pytest.raises(wasmtime.Trap, match="undefined element"):
        halves.call("at", 3, 0.5, 1, 2.0)
    assert halves.exports["memory"].read(halves.store, 8, 10) == b"\5\1"


@pytest.mark.parametrize("moved", [[], [range(3, 5)], [range(99)], [range(9, 12), range(30, 80)]], ids=str)
def test_no_byte_is_lost(moved: list[range]) -> None:
    """Segments are cut and joined; those with more than 64 zeros between them stay apart."""
    segments = [(2, b"abcd"), (10, b"efgh"), (90, b"ij"), (20, b"k")]
    here, there = parted(segments, moved)
    assert image([*here, *there]) == image(segments)
    inside = {address for part in moved for address in part}
    assert all(start + n in inside for start, data in there for n in range(len(data)))
    assert not any(data[n] and start + n in inside for start, data in here for n in range(len(data)))
    assert moved or [start for start, _ in here] == [2, 90]


def image(segments: list[tuple[int, bytes]]) -> bytes:
    memory = bytearray(max(start + len(data) for start, data in segments))
    for start, data in segments:
        memory[start : start + len(data)] = data
    return bytes(memory)


def test_tables_of_the_interpreter() -> None:
    """All that are listed can wait, by the profile that is there; not where a function of theirs is used, and none of
    another binary."""
    binary = PYODIDE.read_bytes()
    used = numbers((ROOT / "scripts" / "python_used.txt").read_text())
    listed = tables(LISTED, binary, used)
    assert len(listed) == 9 and sum(map(len, listed)) > 1_700_000
    assert len(tables(LISTED, binary, used | {6700})) == 3
    assert tables(LISTED, binary + b"\0", used) == []
    whole = Splitter(binary).data
    here, there = parted(whole, listed)
    assert image([*here, *there]) == image(whole)
    assert len(here) < len(whole) / 10

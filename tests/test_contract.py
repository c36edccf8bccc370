"""The contract of compiler and executors: what its schema gives is fresh, and no damaged file gets past it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path

import pytest

from kit import corrupted
from kit.docs import ROOT
from pyruntime import InferenceSession, InvalidModel, PyRuntimeError
from pyruntime.native.sessions.validation import read_program
from pyruntime.program.format import FORMAT, HEAD, MAGIC, Program
from pyruntime.providers.wasm.printer.native_imports import FUNCTIONS
from scripts.contract import SCHEMA, slim
from tests.wasm.native import needs_code

COUNT = 400
SOURCES = cache(corrupted.sources)


def test_what_follows_from_the_schema_is_fresh() -> None:
    command = [sys.executable, "-m", "scripts.contract", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("name", [name for name, *_ in SOURCES()])
def test_what_the_compiler_writes_is_a_program(name: str) -> None:
    program = next(data for known, data, _ in SOURCES() if known == name)
    assert read_program(program).to_bytes() == program


def test_damaged_programs_are_refused_or_run() -> None:
    """None ends in an error that is not ours; any change of the bytes alone is found. The seed is fixed."""
    ends = [
        (told, data, corrupted.outcome(data, feeds)) for told, data, feeds in corrupted.cases(SOURCES(), 1, 0, COUNT)
    ]
    assert not [(told, end) for told, _, end in ends if not end.isidentifier()]
    assert {end for told, _, end in ends if "bits of" in told or "cut to" in told} == {"InvalidModel"}
    assert sum(end == "ran" for *_, end in ends) < COUNT // 5


@needs_code
def test_hostile_programs_that_call_machine_code() -> None:
    """Any operands: a call that leaves its memory is declined, and WebAssembly traps or computes as without it."""
    found = corrupted.native_sources()
    for _, data, feeds in found:
        program = Program.from_bytes(data)
        code = program.part(program.header["modules"]["wasm"])
        assert any(name.encode() in code for name in FUNCTIONS)
        assert corrupted.outcome(data, feeds) == "ran"
    ends = [end for _, end in corrupted.watched(found, 1, 60)]
    assert all(end.isidentifier() for end in ends), ends
    assert ends.count("ran") > 10 and ends.count("ExecutionError") > 1


def test_both_runtimes_say_the_same_of_damaged_programs(tmp_path: Path) -> None:
    told = []
    halves = InferenceSession(ROOT / "demo/digits/digits.onnx").export(True, providers=["webgpu", "wasm"])
    found = [*corrupted.cases(SOURCES(), 2, 0, COUNT), *corrupted.cases([("halves", halves, {})], 4, 0, COUNT // 4)]
    for n, (_, data, _) in enumerate(found):
        (tmp_path / f"{n}.pyrt").write_bytes(data)
        try:
            read_program(data)
            told.append("")
        except PyRuntimeError as error:
            told.append(f"{error}")
    command = [
        "node",
        "--no-warnings",
        "--experimental-default-type=module",
        "tests/web/open_programs.mjs",
        str(tmp_path),
    ]
    answers = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    different = [(a, b) for a, b in zip(told, answers, strict=True) if a != b and "no JSON" not in a]
    assert not different
    assert len(set(told)) > COUNT // 5, "they fail in many ways"


@pytest.mark.parametrize("text", [b"[" * 100_000, b"{}", b"[]", b'"x"', b"1" * 6000, b"\xff\xfe", b"NaN", b""])
def test_headers_that_are_none(text: bytes) -> None:
    with pytest.raises(InvalidModel, match="the program is damaged"):
        InferenceSession(HEAD.pack(MAGIC, FORMAT, zlib.crc32(text), len(text)) + text)


def test_another_format_is_named() -> None:
    with pytest.raises(InvalidModel, match="format 9"):
        InferenceSession(MAGIC + b"\x09" + SOURCES()[0][1][5:])


def test_cases_can_be_had_again() -> None:
    first, second = (list(corrupted.cases(SOURCES(), 3, n, 8)) for n in (0, 5))
    assert first[5:] == second
    assert corrupted.corrupted(SOURCES()[0][1], random.Random(1)) == corrupted.corrupted(
        SOURCES()[0][1], random.Random(1)
    )


def test_the_pages_copy_of_the_schema() -> None:
    """It is written with functions, because it is in the worker of each page."""
    script = "console.log(JSON.stringify((await import('./web/worker/programs/program_schema.js')).SCHEMA))"
    command = ["node", "--input-type=module", "-e", script]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    kept = {name: rule for name, rule in slim(SCHEMA).items() if name not in ("$schema", "$comment", "title")}
    assert found == kept

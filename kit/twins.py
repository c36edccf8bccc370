"""Files that are written in Python and again in JavaScript, because `pyruntime/runtime/` cannot have their code.

A change of one needs the same change of the other. Each file says in its header "Twin of PATH". tests/test_house.py
compares the headers with this table, and scripts/draw_house.py writes the table into docs/design/runtime.md. Files that
only await runs and move bytes, while shared code makes the decisions and texts, are no twins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kit.house import files, text_of

HEADER = 12  # lines of a file in which it names its twins
NAMED = re.compile(r"Twin of ((?:\S+\.(?:py|js)(?:, | and )?)+)")


class Twin(NamedTuple):
    """why: the code cannot be shared; proof: files of the tests that compare both, or that test each"""

    python: str
    javascript: str
    why: str
    proof: str


TWINS = [
    Twin(
        "pyruntime/onnx/gguf_reader.py",
        "web/extras/gguf_metadata.js",
        "bytes of a file that is still arriving, `DataView`; the tokenizer is `runtime/gguf_tokenizer.py`",
        "tests/test_gguf.py tests/vectors/gguf_tokenizers.json",
    ),
    Twin(
        "pyruntime/training/graph/traced_functions.py",
        "web/page/training/traced_functions.js",
        "operators and attributes of Python, a `Proxy`; the table of methods is `runtime/traced_vocabulary.py`",
        "tests/training/test_functions.py e2e/test_functions.py",
    ),
    Twin(
        "pyruntime/program/dims.py",
        "web/common/dims.js",
        "natively dims become Python functions, because a token evaluates thousands; pages forbid `eval`",
        "tests/vectors/dims.json",
    ),
    Twin("pyruntime/errors.py", "web/common/errors.js", "exceptions belong to a language", "e2e/test_errors.py"),
    Twin(
        "pyruntime/native/execution/executor.py",
        "web/run/executor.js",
        "promises, threads, portions",
        "e2e/test_conformance.py tests/test_offsets.py",
    ),
    Twin(
        "pyruntime/native/execution/control.py",
        "web/run/control.js",
        "promises; the states are `runtime/loop_states.py`",
        "e2e/test_conformance.py",
    ),
    Twin(
        "pyruntime/native/execution/load_program.py",
        "web/run/load_program.js",
        "wasmtime, `WebAssembly.Module`, promises",
        "e2e/test_conformance.py",
    ),
    Twin(
        "pyruntime/native/execution/resident_outputs.py",
        "web/run/resident_outputs.js",
        "natively data are copied out late, pages get new rows at once; the arithmetic is `runtime/growth.py`",
        "tests/test_resident_outputs.py tests/web/resident_outputs.test.mjs",
    ),
    Twin(
        "pyruntime/native/execution/gpu_transfers.py",
        "web/gpu/transfers.js",
        "wgpu, the browser's queue",
        "tests/webgpu/test_conformance.py e2e/test_webgpu.py",
    ),
    Twin(
        "pyruntime/native/execution/gpu_caches.py",
        "web/gpu/caches.js",
        "wgpu, the browser's buffers",
        "tests/webgpu/test_cache.py e2e/test_gpu_caches.py",
    ),
    Twin(
        "pyruntime/native/execution/verify.py",
        "web/session/verify.js",
        "promises",
        "tests/test_reports.py e2e/test_webgpu.py",
    ),
    Twin(
        "pyruntime/native/memory/argument_blocks.py",
        "web/run/argument_blocks.js",
        "NumPy, `Float64Array`",
        "tests/test_offsets.py",
    ),
    Twin(
        "pyruntime/session/specialisation.py",
        "web/session/specialiser.js",
        "errors and compilation differ",
        "tests/test_specialise.py e2e/test_symbols.py",
    ),
    Twin(
        "pyruntime/session/states.py",
        "web/session/states.js",
        "threads; the transitions are `runtime/session_rules.py`",
        "tests/test_session_states.py tests/web/session_core.test.mjs",
    ),
    Twin(
        "pyruntime/session/events.py",
        "web/common/events.js",
        "threads",
        "tests/test_events.py tests/web/events.test.mjs",
    ),
    Twin(
        "pyruntime/native/sessions/program_file.py",
        "web/worker/programs/export_program.js",
        "where the bytes of weights are",
        "tests/web/program_file.test.mjs e2e/test_exported.py",
    ),
    Twin(
        "pyruntime/api/batcher.py",
        "web/extras/batcher.js",
        "threads, promises; the groups are `runtime/batching.py`",
        "tests/test_batcher.py tests/web/batcher.test.mjs",
    ),
    Twin(
        "pyruntime/native/sessions/adapters.py",
        "web/run/joined_adapters.js",
        "NumPy, typed arrays",
        "tests/training/test_adapters.py e2e/test_adapters.py",
    ),
    Twin(
        "providers/webgpu/wgpu_bindings.py",
        "web/gpu/bindings.js",
        "wgpu, the browser's bind groups",
        "tests/webgpu/test_buffers.py e2e/test_webgpu.py",
    ),
    Twin(
        "pyruntime/training/adapters/session_adapters.py",
        "web/page/training/adapters.js",
        "promises",
        "tests/training/test_adapters.py e2e/test_adapters.py",
    ),
    Twin(
        "pyruntime/native/sessions/stored_arrays.py",
        "web/worker/models/merged_weights.js",
        "NumPy, typed arrays",
        "tests/training/test_adapters.py e2e/test_adapters.py",
    ),
]


def named(path: Path) -> set[str]:
    """The twins that a file names in its first lines."""
    head = " ".join(" ".join(text_of(path).splitlines()[:HEADER]).replace("//", " ").split())
    return {name.rstrip(".") for found in NAMED.findall(head) for name in re.split(r", | and ", found.strip())}


def wrong() -> Iterator[str]:
    """What the table and the headers contradict each other in."""
    expected: dict[str, set[str]] = {}
    for twin in TWINS:
        expected.setdefault(twin.python, set()).add(twin.javascript)
        expected.setdefault(twin.javascript, set()).add(twin.python)
        yield from (f"{name}: not there" for name in twin.proof.split() if Path(name) not in files())
    for path in files():
        if path.parts[0] in ("pyruntime", "providers", "web") and path.suffix in (".py", ".js"):
            found, listed = named(path), expected.pop(path.as_posix(), set())
            if found != listed:
                yield f"{path}: names {sorted(found)} as its twins, kit/twins.py has {sorted(listed)}"
    yield from (f"{name}: not there" for name in expected)


def table() -> str:
    lines = ["| Python | JavaScript | why | what holds them together |", "|---|---|---|---|"]
    for python, javascript, why, proof in TWINS:
        tests = ", ".join(f"`{name}`" for name in proof.split())
        lines.append(f"| `{python}` | `{javascript}` | {why} | {tests} |")
    return "\n".join(lines)

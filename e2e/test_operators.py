"""ONNX Runtime's own operators in Chromium, on WebAssembly, against ONNX Runtime. On the GPU: tests/webgpu."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.chromium import ROOT, Engine
from kit.conformance.chromium import run
from kit.conformance.compare import assert_equal


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Of the tables in tests/ops: name, model, feeds, tolerance, answers."""
    path: Path = tmp_path_factory.mktemp("operators") / "examples"
    subprocess.run([sys.executable, "-m", "tests.ops.one_of_each", str(path)], cwd=ROOT, check=True, timeout=120)
    found: list[Any] = pickle.loads(path.read_bytes())
    return found


def test_operators(engine: Engine, examples: list[Any]) -> None:
    """Half of them in isolated pages, half in others."""
    half = examples[engine.page.evaluate("Number(crossOriginIsolated)") :: 2]
    assert len(half) > 25
    for name, model, feeds, tolerance, expected in half:
        tolerance = max(tolerance, 1e-4)
        assert_equal(expected, run(engine, "wasm", model, feeds)[0], tolerance, tolerance, name)

"""Sessions of one model in one process share the memory of the weights and nothing else."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime import InferenceSession, SessionOptions
from pyruntime.native.execution.executor import Executor
from pyruntime.providers.wasm import shared_pages

pytestmark = pytest.mark.skipif(shared_pages._mmap is None, reason="memories here cannot share pages")
WIDTH = 1100  # 4.8 MB
X = np.random.default_rng(1).standard_normal((3, WIDTH)).astype(np.float32)


def weights(seed: int, width: int = WIDTH) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((width, width), np.float32)


def made(weight: np.ndarray, op: str = "Relu") -> onnx.ModelProto:
    graph = f"g (float[n, k] x) => (float[n, m] y) {{ a = MatMul (x, w)  y = {op} (a) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {graph}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.fixture
def siblings(monkeypatch: pytest.MonkeyPatch) -> list[Executor]:
    """Executors that share the weights of others."""
    found: list[Executor] = []
    real = Executor.sibling

    def sibling(self: Executor, *args: Any) -> Executor:
        found.append(real(self, *args))
        return found[-1]

    monkeypatch.setattr(Executor, "sibling", sibling)
    return found


def run(session: InferenceSession, x: np.ndarray = X) -> np.ndarray:
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


def right(session: InferenceSession, weight: np.ndarray) -> None:
    np.testing.assert_allclose(run(session), np.maximum(X @ weight, 0), rtol=1e-4, atol=1e-3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(made(weights(0)), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("way", ["path", "bytes", "external", "program"])
def test_the_second_session_shares_the_weights(way: str, path: Path, siblings: list[Executor]) -> None:
    model: Any = path
    if way == "bytes":
        model = path.read_bytes()
    elif way == "external":
        onnx.save(made(weights(0)), path, save_as_external_data=True, location="weights.bin")
    elif way == "program":
        model = InferenceSession(path).export(weights=True)
        gc.collect()
    first = InferenceSession(model)
    second = InferenceSession(bytearray(model) if way == "bytes" else model)
    assert len(siblings) == 1
    right(first, weights(0))
    right(second, weights(0))
    del first
    gc.collect()
    right(second, weights(0))
    third = InferenceSession(model)
    right(third, weights(0))


def test_different_models_share_nothing(path: Path, siblings: list[Executor]) -> None:
    first = InferenceSession(path)
    options = [SessionOptions() for _ in range(3)]
    options[0].intra_op_num_threads, options[1].memory_limit = 2, 1 << 29
    options[2].disabled_passes = ["operand_packing"]
    others = [InferenceSession(path, one) for one in options]
    (path.parent / "other.onnx").write_bytes(made(weights(0), "Abs").SerializeToString())
    absolute = InferenceSession(path.parent / "other.onnx")
    assert not siblings
    for session in (first, *others):
        right(session, weights(0))
    np.testing.assert_allclose(run(absolute), np.abs(X @ weights(0)), rtol=1e-4, atol=1e-3)


def test_a_file_that_changed(path: Path, siblings: list[Executor]) -> None:
    first = InferenceSession(path)
    size, when = path.stat().st_size, path.stat().st_mtime_ns
    path.unlink()
    onnx.save(made(weights(5)), path)
    os.utime(path, ns=(when, when + 1))
    assert path.stat().st_size == size
    second = InferenceSession(path)
    assert not siblings
    right(second, weights(5))
    right(first, weights(0))


def test_a_file_changed_in_place(path: Path, siblings: list[Executor]) -> None:
    """Even if its modification time is restored, as copying tools do."""
    first, when = InferenceSession(path), path.stat()
    with open(path, "r+b") as file:
        file.write(made(weights(5)).SerializeToString())
    os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
    right(InferenceSession(path), weights(5))
    assert not siblings and first


def test_a_buffer_changed_in_place(path: Path, siblings: list[Executor]) -> None:
    model = bytearray(path.read_bytes())
    first = InferenceSession(model)
    model[:] = made(weights(5)).SerializeToString()
    right(InferenceSession(model), weights(5))
    right(InferenceSession(memoryview(model)), weights(5))
    assert not siblings and first


def test_sessions_are_independent(path: Path, siblings: list[Executor]) -> None:
    """Trimming or closing one, or its outputs in memory, do not affect the other."""
    first, second = InferenceSession(path), InferenceSession(path)
    assert len(siblings) == 1
    large = np.ones((5000, WIDTH), np.float32)
    run(first, large)
    first.trim()
    right(second, weights(0))
    run(second, large)
    second.trim()
    right(first, weights(0))
    right(second, weights(0))
    assert first.memory().weights == second.memory().weights


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int, path: Path, siblings: list[Executor]) -> None:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    sessions = [InferenceSession(path, options) for _ in range(3)]
    assert len(siblings) == 2 and all(s._native.latest().host.threads == threads for s in sessions)
    for session in sessions:
        right(session, weights(0))


MEASURED = """
import sys
from pyruntime import InferenceSession
def held():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10
sessions, found = [], [held()]
for _ in range(3):
    sessions.append(InferenceSession(sys.argv[1]))
    found.append(held())
print(*found)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell")
def test_memory_of_one(tmp_path: Path) -> None:
    """Three sessions with 100 MB of weights take little more than one."""
    onnx.save(made(weights(0, 5000)), tmp_path / "large.onnx")
    done = subprocess.run([sys.executable, "-c", MEASURED, tmp_path / "large.onnx"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, *after = map(int, done.stdout.split())
    assert after[0] - before >= 100e6
    assert after[2] - after[0] < 20e6

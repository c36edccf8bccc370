"""Weights in further memories, in pages: in the worker, on threads, from files. tests/test_further.py has more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.conftest import Server, Tab
from kit import browsers, zoo
from kit.chromium import ROOT, BrowserError, Engine
from kit.models import MODELS
from kit.small_models import branches_and_rounds
from pyruntime import InferenceSession, SessionOptions
from pyruntime.emit import further_memories as further

NAMES = ["mobilenet_v2.qdq", "gpt2_tiny", "llama_mini.nb4", "lstm_tagger"]
SET = "import pyruntime.emit.further_memories as f; f.ROOM, f.SMALL, f.LARGEST = "
TIGHT = f"{SET} 1 << 32, 0, 4 << 20"
LOOSE = f"{SET} {further.ROOM}, {further.SMALL}, {further.LARGEST}"
RUNS = 60  # threads join after half a second
RUN = """
  const session = await ort.InferenceSession.create(arg.url, { intraOpNumThreads: arg.threads });
  const image = new ort.Tensor('float32', Float32Array.from({ length: 784 }, (_, n) => n % 7), [1, 1, 28, 28]);
  const outputs = [];
  for (let n = 0; n < 3; n++) outputs.push([...(await session.run({ image })).probabilities.data]);
  const { weights } = await session.memory();
  await session.release();
  return { outputs, weights };
"""


@pytest.fixture
def tight(engine: Engine) -> Iterator[Engine]:
    """The first memory has no room for weights, further ones have room for four megabytes each."""
    engine.python(TIGHT)
    yield engine
    engine.python(LOOSE)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_models(tight: Engine, name: str, threads: int) -> None:
    model = MODELS[name]
    session = tight.open(model.path(), intraOpNumThreads=threads)
    model.check(session.run(None, model.feeds()))
    if threads > 1:
        session.repeat(model.feeds(), RUNS)
        model.check(session.run(None, model.feeds()))
    memory = session.memory()
    assert memory["arena"] > memory["weights"] > 2 << 20
    session.release()


def test_bodies(tight: Engine) -> None:
    model = branches_and_rounds().SerializeToString()
    session = tight.open(model)
    for flag in (True, False):
        feeds = {"x": np.arange(32, dtype=np.float32).reshape(2, 16) / 16, "flag": np.array(flag)}
        for ours, theirs in zip(session.run(None, feeds), zoo.oracle(model, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    session.release()


def test_limits(tight: Engine) -> None:
    path = MODELS["gpt2_tiny"].path()
    with pytest.raises(BrowserError, match="bytes of memory are needed, memoryLimit is 3000000"):
        tight.open(path, memoryLimit=3_000_000)
    session = tight.open(path, memoryLimit=100_000_000)
    MODELS["gpt2_tiny"].check(session.run(None, MODELS["gpt2_tiny"].feeds()))
    session.release()


def test_in_firefox(servers: dict[str, Server]) -> None:
    if browsers.firefox_path() is None:
        pytest.skip("not installed; scripts/setup.sh browsers does it as root")
    model = MODELS["gpt2_tiny"]
    with browsers.firefox() as page:
        engine = Engine(page, servers["isolated"].url)
        engine.python(TIGHT)
        for threads in (1, 2):
            session = engine.open(model.path(), intraOpNumThreads=threads)
            session.repeat(model.feeds(), RUNS)
            model.check(session.run(None, model.feeds()))
            assert session.memory()["weights"] > 2 << 20
            session.release()


@pytest.fixture(scope="module")
def exported(built: None) -> Path:
    """Programs whose weights are in further memories, for one thread and for two."""
    folder = ROOT / "build" / "models"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(further, "ROOM", 1 << 32)
        patch.setattr(further, "SMALL", 0)
        for threads in (1, 2):
            options = SessionOptions(intra_op_num_threads=threads)
            session = InferenceSession(ROOT / "demo" / "digits" / "digits.onnx", options)
            assert session._native.latest().header["memories"]
            new = folder / f"further{threads}.pyrt.{os.getpid()}"
            new.write_bytes(session.export(weights=True))
            new.replace(folder / f"further{threads}.pyrt")
    return folder


@pytest.mark.parametrize("threads", [1, 2])
def test_exported(exported: Path, threads: int, tab: Callable[..., Tab]) -> None:
    made = tab()
    made.open("/esm.html")
    found: Any = made.run(RUN, {"url": f"/models/further{threads}.pyrt", "threads": threads})
    image = (np.arange(784) % 7).astype(np.float32).reshape(1, 1, 28, 28)
    (expected,) = InferenceSession(ROOT / "demo" / "digits" / "digits.onnx").run(None, {"image": image})
    for output in found["outputs"]:
        np.testing.assert_allclose(output, expected.ravel(), rtol=1e-4, atol=1e-6)
    assert found["weights"] > 100_000

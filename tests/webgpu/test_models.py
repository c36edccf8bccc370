"""Real models on the native GPU: right outputs, and no needless crossing between feeds and outputs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kit import zoo
from kit.gpu import GPU
from kit.models import MODELS, SILERO, silero, silero_path
from pyruntime import InferenceSession

pytest.importorskip("wgpu")

BOTH = ["digits", "squeezenet", "llama_mini", "lstm_tagger", "vit_tiny", "yolo_nms"]

# What kernels may stay on the CPU for: llvmpipe leaves loops early, an adapter binds so much, integers have 32 bits
REASONS = re.compile(r"loop iterations in one invocation|the GPU allows|may need more than 32 bits")


def opened(name: str, providers: list[str]) -> InferenceSession:
    session = InferenceSession(str(MODELS[name].path()), providers=providers)
    MODELS[name].check(session.run(None, MODELS[name].feeds()))
    return session


def inner_crossings(session: InferenceSession) -> int:
    """Copies between the memories in the main block, other than those of feeds and of outputs."""
    header = session._native.latest().header
    feeds = {spec["buffer"] for spec in header["inputs"]}
    outputs = {o["value"]["buffer"] for o in header["outputs"]}
    pairs = [(s["to"], *p) for s in header["blocks"][1]["steps"] if s["op"] == "copy" for p in s["pairs"]]
    return sum(
        target["buffer"] not in outputs if to == "wasm" else source["buffer"] not in feeds
        for to, source, target in pairs
    )  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    session = opened(name, ["webgpu"])
    why = {n["why"] for n in session.explain()["nodes"]} - {""}
    assert all(REASONS.search(reason) for reason in why), why
    assert why or inner_crossings(session) == 0


@pytest.mark.parametrize("name", BOTH)
def test_with_the_cpu(name: str) -> None:
    opened(name, [GPU, "wasm"])


@pytest.mark.parametrize("version", SILERO)
def test_silero_feeds_its_state_back(version: str) -> None:
    count = 20
    expected = silero(zoo.oracle_session(silero_path(version).read_bytes()), version, count)
    actual = silero(InferenceSession(str(silero_path(version)), providers=["webgpu"]), version, count)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4)

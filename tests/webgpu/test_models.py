"""Real models on the native GPU: right outputs, and no crossing between feeds and outputs where there need be none."""

from __future__ import annotations

import pytest

from pyruntime import InferenceSession
from tests.models import MODELS

pytest.importorskip("wgpu")

LIGHT = ["light_squeezenet", "light_shufflenet", "mobilenet_v2", "vit_tiny", "bert_tiny", "gpt2_tiny", "unet_resize"]
LARGE = ["resnet50", "efficientnet_b0", "minilm", "whisper_tiny_encoder", "whisper_tiny_decoder", "superres"]


def inner_crossings(session: InferenceSession) -> int:
    """Copies between the memories in the main block, other than those of feeds and of outputs."""
    header = session._latest().header
    feeds = {spec["buffer"] for spec in header["inputs"]}
    outputs = {o["value"]["buffer"] for o in header["outputs"]}
    pairs = [(s["to"], *p) for s in header["blocks"][1]["steps"] if s["op"] == "copy" for p in s["pairs"]]
    return sum(
        target["buffer"] not in outputs if to == "wasm" else source["buffer"] not in feeds
        for to, source, target in pairs
    )  # fmt: skip


@pytest.mark.parametrize("name", LIGHT)
def test_model(name: str) -> None:
    model = MODELS[name]
    session = InferenceSession(str(model.path()), providers=["webgpu"])
    model.check(session.run(None, model.feeds()))
    assert inner_crossings(session) == 0


@pytest.mark.parametrize("name", LARGE)
def test_large_model(name: str) -> None:
    model = MODELS[name]
    session = InferenceSession(str(model.path()), providers=["webgpu"])
    model.check(session.run(None, model.feeds()))

"""Training of networks with a Scan or a Loop against JAX 0.10.2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kit.loop_networks import RATE, TEXTS, batches, curves, network, weights
from pyruntime import TrainingSession
from pyruntime.providers.webgpu.wgpu_device import shared_device

CURVES = curves()


def test_the_references_learn() -> None:
    assert CURVES.keys() == TEXTS.keys()
    for curve in CURVES.values():
        assert curve[0] > 2 and max(curve[-5:]) < 0.5  # always the most frequent symbol: 1.9


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("name", CURVES)
def test_curves_are_those_of_jax(name: str, provider: str) -> None:
    curve = CURVES[name]
    options: dict[str, Any] = {"loss": {"cross_entropy": "logits"}, "optimizer": {"adam": {"rate": RATE}}}
    options["trainable"] = [*weights(name)]  # some begin as series, which without this count as constants
    with TrainingSession(network(name), providers=[provider], **options) as session:
        losses = [session.step(feeds).loss for feeds in batches(len(curve))]
        loops = [(node["loop"], node["place"]) for node in session.explain()["nodes"] if node["loop"]]
    assert loops == [("written as one procedure", provider)] * 2
    np.testing.assert_allclose(losses, curve, atol=2e-5)


@pytest.mark.parametrize("limit", [5, 7, 8])
@pytest.mark.parametrize("name", CURVES)
def test_shaders_of_few_tensors(name: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and outputs of loops are joined by several copies, each of which writes a part of one buffer."""
    device = shared_device()
    monkeypatch.setattr(device, "adapter", replace(device.adapter, storage_buffers=limit))
    options: dict[str, Any] = {"loss": {"cross_entropy": "logits"}, "optimizer": {"adam": {"rate": RATE}}}
    options["trainable"] = [*weights(name)]
    with TrainingSession(network(name), providers=["webgpu"], **options) as session:
        losses = [session.step(feeds).loss for feeds in batches(3)]
    np.testing.assert_allclose(losses, CURVES[name][:3], atol=2e-5)

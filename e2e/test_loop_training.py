"""Training of a selective scan (Scan) and of a decaying average (Loop) in pages: curves equal to JAX's."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from e2e.conftest import Tab
from kit.loop_networks import RATE, ROWS, STEPS, batches, curves, network, weights

CURVES = curves()
OPTIONS = {"loss": {"crossEntropy": "logits"}, "optimizer": {"adam": {"rate": RATE}}}

TRAIN = """
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const executionProviders = arg.providers;
  const session = await ort.TrainingSession.create(model, { ...arg.options, executionProviders });
  const tensor = (numbers) => new ort.Tensor('int32', Int32Array.from(numbers), arg.dims);
  const losses = [];
  for (const { ids, target } of arg.batches) {
    losses.push((await session.step({ ids: tensor(ids), target: tensor(target) })).loss);
  }
  const { nodes } = await session.explain();
  await session.release();
  return { losses, loops: nodes.filter(({ loop }) => loop) };
"""


@pytest.mark.parametrize("provider", ["wasm", "webgpu"])
@pytest.mark.parametrize("name", CURVES)
def test_curves_are_those_of_jax(name: str, provider: str, tab: Callable[..., Tab]) -> None:
    """The loop and its gradient are one procedure each, also RWKV's, which have more tensors than shaders in Chromium
    may have."""
    page = tab()
    page.open("/esm.html")
    curve = CURVES[name]
    given = {
        "model": base64.b64encode(network(name)).decode(), "providers": [provider], "dims": [STEPS, ROWS],
        "options": {**OPTIONS, "trainable": [*weights(name)]},
        "batches": [{k: x.ravel().tolist() for k, x in feeds.items()} for feeds in batches(len(curve))],
    }  # fmt: skip
    found: Any = page.run(TRAIN, given)
    np.testing.assert_allclose(found["losses"], curve, atol=2e-5)
    assert len(found["loops"]) == 2
    for node in found["loops"]:
        assert node["loop"] == "written as one procedure"
        assert node["place"] == provider

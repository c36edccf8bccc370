"""The networks of `python -m bench training`: they learn, and a step holds little besides what it must keep."""

from __future__ import annotations

import pytest

from bench.training_memory import memory_use
from bench.training_nets import NETS
from pyruntime import TrainingSession


@pytest.mark.parametrize("name", NETS)
def test_peak_is_near_the_kept_activations(name: str) -> None:
    use = memory_use(NETS[name])
    assert use.kept < use.peak < 1.4 * use.kept


@pytest.mark.parametrize("name", NETS)
def test_loss_falls(name: str) -> None:
    net = NETS[name]
    with TrainingSession(net.model(), loss={"cross_entropy": "logits", "axis": -1}, optimizer="adam") as session:
        losses = [session.step(net.feeds(n)).loss for n in range(20)]
    assert losses[-1] < 0.8 * losses[0]

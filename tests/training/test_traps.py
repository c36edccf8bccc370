"""Kernels that trap in a step: weights are as before it, or work is refused until a checkpoint is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kit import trapping_kernel
from kit.training_networks import batch, layer
from kit.trapping_kernel import TRIGGER
from pyruntime import SessionFailed, SessionOptions, TrainingSession
from pyruntime.errors import ExecutionError


@pytest.fixture
def trap(request: pytest.FixtureRequest) -> Iterator[None]:
    install: Callable[[], None] = request.param
    install()
    yield
    trapping_kernel.uninstall()


def session(threads: int = 1) -> TrainingSession:
    options = SessionOptions()
    options.intra_op_num_threads = threads
    return TrainingSession(layer(), loss={"cross_entropy": "y"}, optimizer="adam", sess_options=options)


@pytest.mark.parametrize("trap", [lambda: trapping_kernel.install(0)], indirect=True)
def test_before_the_update(trap: None) -> None:
    """In the kernel of Tanh."""
    feeds = batch(4)
    bad = {**feeds, "x": np.full_like(feeds["x"], TRIGGER)}
    with session() as stopped, session() as other:
        for _ in range(3):
            with pytest.raises(ExecutionError, match="out of bounds"):
                stopped.step(bad)
            assert stopped.step(feeds) == other.step(feeds) and stopped.state() == other.state()


@pytest.mark.parametrize("trap", [trapping_kernel.install_in_updates], indirect=True)
@pytest.mark.parametrize("threads", [1, 2])
def test_in_the_update(trap: None, threads: int) -> None:
    feeds = batch(4)
    with session(threads) as stopped, session() as other:
        start = stopped.state()
        with pytest.raises(ExecutionError, match="out of bounds"):
            stopped.step(feeds, rate=TRIGGER)
        with pytest.raises(SessionFailed, match="load a checkpoint"):
            stopped.step(feeds)
        stopped.load(start)
        for _ in range(2):  # a trap in the first step after load() loses nothing
            with pytest.raises(ExecutionError, match="out of bounds"):
                stopped.step(feeds, rate=TRIGGER)
        assert stopped.state() == start
        assert [stopped.step(feeds) for _ in range(2)] == [other.step(feeds) for _ in range(2)]
        checkpoint = stopped.state()
        with pytest.raises(ExecutionError, match="out of bounds"):
            stopped.step(feeds, rate=TRIGGER)
        for refused in (stopped.state, stopped.weights, stopped.export, lambda: stopped.evaluate(feeds)):
            with pytest.raises(SessionFailed, match="load a checkpoint"):
                refused()
        stopped.load(checkpoint)
        assert stopped.step(feeds) == other.step(feeds)

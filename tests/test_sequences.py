"""Random sequences of calls (fuzz/sequences), and what they found, as ordinary cases."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis.stateful import run_state_machine_as_test

from fuzz.sequences import inference, training
from fuzz.sequences.machine import Machine, of_machine, seem_hardware, together
from pyruntime import Batcher, InferenceSession, RunOptions, SessionOptions, Terminated, TrainingSession
from pyruntime.errors import PyRuntimeError
from pyruntime.providers.webgpu import wgpu_device
from pyruntime.session.states import SessionState

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def _hardware() -> Iterator[None]:
    described, devices = wgpu_device._describe, wgpu_device._devices
    seem_hardware()
    yield
    wgpu_device._describe, wgpu_device._devices = described, devices


@pytest.mark.usefixtures("_hardware")
@pytest.mark.parametrize(("machine", "examples"), [(inference.InferenceMachine, 8), (training.TrainingMachine, 8)])
def test_sequences(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(machine, settings=of_machine(examples, 15, is_fixed=True))


@pytest.mark.usefixtures("_hardware")
def test_a_session_whose_trim_met_a_lost_device_can_be_released() -> None:
    session = InferenceSession(inference.MODEL, providers=["webgpu"])
    native = session._native
    native.alone(lambda: native._states.enter(SessionState.RECOVERING))  # as work without a Program leaves it
    session.release()
    assert session.state == "released"


def test_prepare_after_a_refused_run_and_with_adapters() -> None:
    """A run with two sizes of one dim must not take the dim's name away; a Program has places for adapters."""
    options = SessionOptions()
    options.adapters = {"one": inference.adapter("one")}
    session = InferenceSession(inference.MODEL, options)
    feeds = {**inference.inputs(3, 0), "past": inference.NOBODY}
    with pytest.raises(PyRuntimeError):
        session.run(None, {**feeds, "i": feeds["i"][1:]})
    session.prepare({"N": 8, "P": 2})
    program = InferenceSession(InferenceSession(inference.MODEL, options).export(True))
    program.prepare({"N": 8, "P": 2})
    for one in (session, program):
        np.testing.assert_allclose(
            one.run(None, feeds)[0], inference.expected(feeds, inference.NOBODY, {})["y"], rtol=1e-3, atol=1e-3
        )


def test_a_batcher_stops_one_request_and_obeys_run_options() -> None:
    session = InferenceSession(inference.MODEL)
    feeds = {**inference.inputs(2, 0), "past": inference.NOBODY}
    stopped, shrinking = RunOptions(), RunOptions()
    stopped.terminate = True
    shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    trims = []
    session.trim = lambda: trims.append(True)  # type: ignore[method-assign]
    with Batcher(session, size=8, wait=60_000, dim="N", output_names=["y"]) as batcher:
        futures = [batcher.submit(["y"], feeds, options) for options in (stopped, None, shrinking, shrinking)]
    with pytest.raises(Terminated):
        futures[0].result(30)
    for future in futures[1:]:
        assert future.result(30)[0].shape == (2, inference.WIDTH)
    assert session.metrics()["runs"] == 2 and trims == [True]  # with and without the option


def opened_training() -> TrainingSession:
    return TrainingSession(
        training.MODEL, loss={"mse": "y"}, optimizer={"sgd": {"rate": training.RATE, "momentum": training.MOMENTUM}},
        trainable=[*training.SHAPES], accumulate=True,
    )  # fmt: skip


def test_threads_of_a_training_session_take_turns() -> None:
    session, reference, feeds = opened_training(), training.Reference(), training.batch(2, 0)
    for _ in range(3):
        found = together([lambda: session.step(feeds)] * 4)
        assert sorted(x.step for x in found) == [reference.steps + n for n in (1, 2, 3, 4)]
        for _ in found:
            reference.step(feeds)
    for name, x in session.weights().items():
        np.testing.assert_allclose(x, reference.weights[name], rtol=1e-3, atol=1e-4)
    session.release()


def test_a_checkpoint_has_no_losses_of_batches_that_wait() -> None:
    session = opened_training()
    session.accumulate(training.batch(2, 0))
    checkpoint = session.state()
    session.apply()
    session.accumulate(training.batch(2, 5))
    session.load(checkpoint)
    assert np.isnan(session.apply().loss)
    session.release()

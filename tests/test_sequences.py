"""Random sequences of calls (fuzz/sequences), and what they found, as ordinary cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis.stateful import run_state_machine_as_test

from fuzz.sequences import inference, network, text, training
from fuzz.sequences.machine import Machine, of_machine, seem_hardware, together
from pyruntime import (
    Batcher,
    InferenceSession,
    RunOptions,
    SessionFailed,
    SessionOptions,
    Terminated,
    TextGenerator,
    TrainingSession,
    set_memory_limit,
)
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
@pytest.mark.parametrize(
    ("machine", "examples"), [(inference.InferenceMachine, 8), (training.TrainingMachine, 6), (text.TextMachine, 4)]
)
def test_sequences(machine: type[Machine], examples: int) -> None:
    run_state_machine_as_test(machine, settings=of_machine(examples, 15, is_fixed=True))


@pytest.mark.usefixtures("_hardware")
def test_a_tensor_of_a_new_device_is_fed_to_a_session_whose_device_is_lost() -> None:
    feeds = {**network.inputs(3, 0), "past": network.NOBODY}
    old = InferenceSession(network.MODEL, providers=["webgpu"])
    old.run(None, feeds)
    lose_device()
    new = InferenceSession(network.MODEL, providers=["webgpu"])
    past = new.run(["present"], feeds, preferred_output_location="gpu-buffer")[0]
    found = old.run(["present"], {**feeds, "past": past})[0]
    right = network.expected(feeds, past.get_data(), {})["present"]
    np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("_hardware")
def test_training_sessions_whose_device_is_lost() -> None:
    """They refuse work, are released, and lose no memory to others that need it."""
    opened = [opened_training(["webgpu"]) for _ in range(4)]
    for session in opened:
        session.step(training.batch(2, 0))
    checkpoint = opened[0].state()
    opened[3].load(checkpoint)
    lose_device()
    for act in (opened[0].weights, lambda: opened[0].set_weights(opened[3].weights())):
        with pytest.raises(SessionFailed, match="the weights are lost"):
            act()
    opened[0].load(checkpoint)
    assert opened[0].step(training.batch(2, 0)).step == opened[3].step(training.batch(2, 0)).step == 2
    lose_device()
    opened[1].release()
    try:
        set_memory_limit(1)  # takes the memory of all that are idle
    finally:
        set_memory_limit(None)
    with pytest.raises(SessionFailed, match="the weights are lost"):
        opened[2].state()


def test_threads_of_a_generator_have_their_own_texts() -> None:
    """Another thread forgets what the caches hold."""
    decoder = text.DECODERS["sums"]()
    writer = TextGenerator(decoder.model.SerializeToString(), stop_tokens=[])

    def write(prompt: list[int]) -> list[list[int]]:
        return [writer.generate(prompt, max_tokens=4).tokens for _ in range(60)]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        prompts = ([1, 2, 3], [4, 5], [1, 2, 9])
        jobs = [lambda prompt=prompt: write(prompt) for prompt in prompts]
        found = together([*jobs, lambda: [writer.reset() for _ in range(100)]])
    finally:
        sys.setswitchinterval(interval)
    assert found[:3] == [[decoder.expected(prompt, 4)] * 60 for prompt in prompts]
    writer.release()


@pytest.mark.usefixtures("_hardware")
def test_a_session_whose_trim_met_a_lost_device_can_be_released() -> None:
    session = InferenceSession(network.MODEL, providers=["webgpu"])
    native = session._native
    native.alone(lambda: native._states.enter(SessionState.RECOVERING))  # as work without a Program leaves it
    session.release()
    assert session.state == "released"


def test_prepare_after_a_refused_run_and_with_adapters() -> None:
    """A run with two sizes of one dim must not take the dim's name away; a Program has places for adapters."""
    options = SessionOptions()
    options.adapters = {"one": network.adapter("one")}
    session = InferenceSession(network.MODEL, options)
    feeds = {**network.inputs(3, 0), "past": network.NOBODY}
    with pytest.raises(PyRuntimeError):
        session.run(None, {**feeds, "i": feeds["i"][1:]})
    session.prepare({"N": 8, "P": 2})
    program = InferenceSession(InferenceSession(network.MODEL, options).export(True))
    program.prepare({"N": 8, "P": 2})
    for one in (session, program):
        np.testing.assert_allclose(
            one.run(None, feeds)[0], network.expected(feeds, network.NOBODY, {})["y"], rtol=1e-3, atol=1e-3
        )


def test_the_caller_changes_options_for_the_next_session() -> None:
    options = SessionOptions()
    options.adapters = {"one": network.adapter("one")}
    session = InferenceSession(network.MODEL, options)
    options.memory_limit = 1
    options.adapters.clear()
    active = RunOptions()
    active.add_active_adapter("one", 2.0)
    feeds = {**network.inputs(3, 0), "past": network.NOBODY}
    right = network.expected(feeds, network.NOBODY, {"one": 2.0})["y"]
    np.testing.assert_allclose(session.run(None, feeds, active)[0], right, rtol=1e-3, atol=1e-3)
    assert session.get_session_options().memory_limit > 1


def test_a_batcher_stops_one_request_and_obeys_run_options() -> None:
    session = InferenceSession(network.MODEL)
    feeds = {**network.inputs(2, 0), "past": network.NOBODY}
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
        assert future.result(30)[0].shape == (2, network.WIDTH)
    assert session.metrics()["runs"] == 2 and trims == [True]  # with and without the option


def lose_device() -> None:
    wgpu_device.shared_device().wgpu.destroy()


def opened_training(providers: list[str] | None = None) -> TrainingSession:
    return TrainingSession(
        training.MODEL, loss={"mse": "y"}, optimizer={"sgd": {"rate": training.RATE, "momentum": training.MOMENTUM}},
        trainable=[*training.SHAPES], accumulate=providers is None, providers=providers,
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

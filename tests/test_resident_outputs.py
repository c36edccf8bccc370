"""Outputs that stay in linear memory for the next run (KV caches, by IO binding and by OrtValues), compared with
onnxruntime and with runs that are fed arrays."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pyruntime
from kit.decoders import TINY, Decoder, feeds
from kit.small_models import model
from pyruntime import InferenceSession, OrtValue, RunOptions, SessionOptions
from pyruntime.errors import ExecutionError, InvalidInput, Terminated
from pyruntime.native.execution.resident_outputs import ResidentOutputs, ResidentTensor

FLOAT = TensorProto.FLOAT
Values = dict[str, Any]


def concat() -> onnx.ModelProto:
    """y = x times the caches. Each of the two outputs is a cache with x appended."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=2),
        helper.make_node("Concat", ["past_v", "x"], ["present_v"], axis=2),
        helper.make_node("Transpose", ["present"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["x", "turned"], ["scores"]),
        helper.make_node("MatMul", ["scores", "present_v"], ["y"]),
    ]
    cache = ["b", 2, "p", 4]
    inputs = [("past", FLOAT, cache), ("past_v", FLOAT, cache), ("x", FLOAT, ["b", 2, "s", 4])]
    return model(nodes, inputs, [("y", FLOAT, None), ("present", FLOAT, None), ("present_v", FLOAT, None)])


CONCAT, DECODER = concat().SerializeToString(), Decoder(TINY, "fp32", empty=False).model().SerializeToString()


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[ResidentTensor]:
    """The tensors whose data are copied out."""
    found: list[ResidentTensor] = []
    data = ResidentOutputs.data

    def counted(self: ResidentOutputs, x: ResidentTensor, detach: bool = False) -> Any:
        result = data(self, x, detach)
        found.extend([x] if result is not None else [])
        return result

    monkeypatch.setattr(ResidentOutputs, "data", counted)
    return found


def past_of(name: str) -> str:
    return name.replace("present", "past")


def step(session: Any, given: Mapping[str, Any], package: Any = None) -> Values:
    """A run with OrtValues."""
    of = OrtValue if package is None else package.OrtValue
    values = {n: x if isinstance(x, of) else of.ortvalue_from_numpy(x) for n, x in given.items()}
    found = session.run_with_ort_values([o.name for o in session.get_outputs()], values)
    return dict(zip([o.name for o in session.get_outputs()], found, strict=True))


def caches(outputs: Mapping[str, Any]) -> Values:
    return {past_of(n): x for n, x in outputs.items() if n.startswith("present")}


def arrays(outputs: Mapping[str, Any]) -> Values:
    return {n: x if isinstance(x, np.ndarray) else x.numpy() for n, x in outputs.items()}


def by_arrays(session: Any, given: Mapping[str, Any]) -> Values:
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, arrays(given)), strict=True))


def near(got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    for name, x in arrays(got).items():
        np.testing.assert_allclose(x, arrays(want)[name], rtol=1e-4, atol=1e-5, err_msg=name)


def row(n: int, rows: int = 1, items: int = 1) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((items, 2, rows, 4), np.float32)


def first(x: np.ndarray) -> Values:
    none = np.zeros((len(x), 2, 0, 4), np.float32)
    return {"past": none, "past_v": none.copy(), "x": x}


def token(n: int, past: int, items: int = 1) -> Values:
    """Feeds for token n after a past of this length, without the caches."""
    given = {k: v for k, v in feeds(TINY, "fp32", 1, past).items() if not k.startswith("past")}
    return {**given, "ids": np.full((items, 1), n % 50), "last": np.full(items, past, np.int32)}


def peer(data: bytes) -> Any:
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_decoder_by_io_binding(copies: list[ResidentTensor], threads: int) -> None:
    """The loop that programs for onnxruntime have. Only caches that outgrow their buffers are copied."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    found = []
    for session in (InferenceSession(DECODER, options), peer(DECODER)):
        binding, names = session.io_binding(), [o.name for o in session.get_outputs()]
        for name, x in feeds(TINY, "fp32", 5, 0).items():
            binding.bind_cpu_input(name, x)
        logits = []
        for n in range(40):
            for name in names:
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
            outputs = dict(zip(names, binding.get_outputs(), strict=True))
            logits.append(outputs["logits"].numpy()[:, -1])
            for name, x in caches(outputs).items():
                binding.bind_ortvalue_input(name, x)
            for name, x in token(n, 5 + n).items():
                binding.bind_cpu_input(name, x)
        found.append((logits, arrays(outputs)))
    (logits, last), (wanted, peers) = found
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    near(last, peers)
    grown, read = 2 * TINY.layers * 8, 2 * TINY.layers  # from 5 places on, a quarter more each time
    assert len(copies) <= grown + read


@pytest.mark.parametrize("items", [1, 3])
def test_a_stored_history(items: int, copies: list[ResidentTensor]) -> None:
    """All presents of all runs are read at the end. Each has the values of its run."""
    session, other = InferenceSession(CONCAT), InferenceSession(CONCAT)
    outputs, wanted = step(session, first(row(0, 3, items))), by_arrays(other, first(row(0, 3, items)))
    history = [(outputs, wanted)]
    for n in range(1, 30):
        rows = n % 4
        outputs = step(session, {**caches(outputs), "x": row(n, rows, items)})
        wanted = by_arrays(other, {**caches(wanted), "x": row(n, rows, items)})
        history.append((outputs, wanted))
    assert len(copies) == len(set(copies)), "a past is copied once, when its buffer is too short for the next"
    for got, want in reversed(history):
        near(got, want)


def test_an_earlier_present_is_fed_again() -> None:
    """Later presents stay as they were."""
    session, other = InferenceSession(CONCAT), InferenceSession(CONCAT)
    root = step(session, first(row(0, 9)))
    root = step(session, {**caches(root), "x": row(1)})
    branches, wanted = [], []
    for n in range(2, 5):
        branches.append(step(session, {**caches(root), "x": row(n)}))
        branches.append(step(session, {**caches(branches[-1]), "x": row(10 * n, 2)}))
    again = by_arrays(other, {**caches(by_arrays(other, first(row(0, 9)))), "x": row(1)})
    for n in range(2, 5):
        wanted.append(by_arrays(other, {**caches(again), "x": row(n)}))
        wanted.append(by_arrays(other, {**caches(wanted[-1]), "x": row(10 * n, 2)}))
    for got, want in zip([root, *branches], [again, *wanted], strict=True):
        near(got, want)


def test_changed_data() -> None:
    session, other = InferenceSession(CONCAT), InferenceSession(CONCAT)
    outputs = step(session, first(row(0, 3)))
    outputs["present"].numpy()[0, 1, 2] = 7
    outputs["present_v"].update_inplace(np.ones((1, 2, 3, 4), np.float32))
    wanted = by_arrays(other, {**caches(outputs), "x": row(1)})
    assert wanted["present"][0, 1, 2, 0] == 7 and wanted["present_v"][0, 0, 0, 0] == 1
    near(step(session, {**caches(outputs), "x": row(1)}), wanted)


def test_swapped_caches() -> None:
    session, other = InferenceSession(CONCAT), InferenceSession(CONCAT)
    outputs = step(session, first(row(0, 3)))
    outputs = step(session, {**caches(outputs), "x": row(1)})
    swapped = {"past": outputs["present_v"], "past_v": outputs["present"], "x": row(2)}
    near(step(session, swapped), by_arrays(other, swapped))
    twice = {"past": outputs["present"], "past_v": outputs["present"], "x": row(2)}
    near(step(session, twice), by_arrays(other, twice))


OUTSIDE: dict[str, Callable[[InferenceSession], Any]] = {
    "another run": lambda session: session.run(None, first(row(9, 20))),
    "a larger run, then trim": lambda session: (session.run(None, first(row(9, 4000))), session.trim()),
    "trim": lambda session: session.trim(),
    "a run that fails": lambda session: pytest.raises(
        InvalidInput, session.run, None, first(np.zeros((1, 3, 1, 4), "f4"))
    ),
    "nothing": lambda session: None,
}


@pytest.mark.parametrize("between", OUTSIDE)
def test_other_work_between_two_runs(between: str) -> None:
    session, other = InferenceSession(CONCAT), InferenceSession(CONCAT)
    outputs, wanted = step(session, first(row(0, 3))), by_arrays(other, first(row(0, 3)))
    outputs = step(session, {**caches(outputs), "x": row(1)})
    wanted = by_arrays(other, {**caches(wanted), "x": row(1)})
    OUTSIDE[between](session)
    near(step(session, {**caches(outputs), "x": row(2)}), by_arrays(other, {**caches(wanted), "x": row(2)}))
    near(outputs, wanted)


def test_another_session_and_a_closed_one() -> None:
    session, other = InferenceSession(CONCAT), InferenceSession(CONCAT)
    outputs, wanted = step(session, first(row(0, 3))), by_arrays(other, first(row(0, 3)))
    more = step(other, {**caches(outputs), "x": row(1)})
    near(more, by_arrays(session, {**caches(wanted), "x": row(1)}))
    outputs = step(session, first(row(0, 3)))
    del session
    gc.collect()
    near(outputs, wanted)


def test_a_stopped_run_does_not_change_its_feeds() -> None:
    session, other, stop = InferenceSession(CONCAT), InferenceSession(CONCAT), RunOptions()
    outputs, wanted = step(session, first(row(0, 3))), by_arrays(other, first(row(0, 3)))
    outputs = step(session, {**caches(outputs), "x": row(1)})
    wanted = by_arrays(other, {**caches(wanted), "x": row(1)})
    stop.terminate = True
    given = {**caches(outputs), "x": OrtValue.ortvalue_from_numpy(row(2))}
    with pytest.raises(Terminated):
        session.run_with_ort_values(None, given, stop)
    near(step(session, given), by_arrays(other, {**caches(wanted), "x": row(2)}))


def test_threads_with_a_cache_each() -> None:
    session, other, found = InferenceSession(CONCAT), InferenceSession(CONCAT), {}

    def decode(seed: int) -> None:
        outputs = step(session, first(row(seed, 3)))
        for n in range(30):
            outputs = step(session, {**caches(outputs), "x": row(100 * seed + n)})
        found[seed] = outputs

    threads = [threading.Thread(target=decode, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, outputs in found.items():
        wanted = by_arrays(other, first(row(seed, 3)))
        for n in range(30):
            wanted = by_arrays(other, {**caches(wanted), "x": row(100 * seed + n)})
        near(outputs, wanted)


# ── new keys among those of the past ─────────────────────────────────────────────────────────────────────────────────


def prompt(items: int, past: int) -> Values:
    given = feeds(TINY, "fp32", past, 0)
    return {**given, "ids": np.arange(items * past).reshape(items, past) % 50, "last": np.full(items, past - 1, "i4"),
            **{n: np.repeat(x, items, 0) for n, x in given.items() if n.startswith("past")}}  # fmt: skip


@pytest.mark.parametrize("lasts", [[5, 5], [5, 3], [4, 4], [3]], ids=str)
def test_a_past_that_the_run_overwrites(lasts: list[int]) -> None:
    """Items of different lengths, and caches with more places than keys: the past of 5 keys does not change."""
    session, other = InferenceSession(DECODER), InferenceSession(DECODER)
    items = len(lasts)
    outputs, wanted = step(session, prompt(items, 4)), by_arrays(other, prompt(items, 4))
    outputs, wanted = (
        step(session, {**caches(outputs), **token(1, 4, items)}),
        by_arrays(other, {**caches(wanted), **token(1, 4, items)}),
    )
    more = {**token(7, 5, items), "last": np.array(lasts, "i4"), "total": np.array(max(lasts) + 1, "i4")}
    near(step(session, {**caches(outputs), **more}), by_arrays(other, {**caches(wanted), **more}))
    near(outputs, wanted)


def test_new_keys_that_are_not_last(copies: list[ResidentTensor]) -> None:
    """seqlens_k is 3 and total_sequence_length 6: reading the overwritten past is an error, and later ones are copied
    before the run."""
    session, other = InferenceSession(DECODER), InferenceSession(DECODER)
    outputs = step(session, {**caches(step(session, prompt(1, 4))), **token(1, 4)})
    wanted = by_arrays(other, {**caches(by_arrays(other, prompt(1, 4))), **token(1, 4)})
    wrong = {**token(7, 5), "last": np.array([2], "i4")}
    near(step(session, {**caches(outputs), **wrong}), by_arrays(other, {**caches(wanted), **wrong}))
    with pytest.raises(ExecutionError, match="among those of this cache"):
        outputs["present.0.key"].numpy()
    outputs = step(session, {**caches(wanted), **token(1, 5)})
    wanted = by_arrays(other, {**caches(wanted), **token(1, 5)})
    wrong = {**token(7, 6), "last": np.array([2], "i4")}
    near(step(session, {**caches(outputs), **wrong}), by_arrays(other, {**caches(wanted), **wrong}))
    near(outputs, wanted)


# ── preallocated caches ──────────────────────────────────────────────────────────────────────────────────────────────


def decoded(session: Any, package: Any, change: int) -> tuple[list[np.ndarray], Values]:
    """Tokens by a binding with the same buffers of 24 places as pasts and presents. The program changes a key after
    token `change`."""
    places = feeds(TINY, "fp32", 1, 24)["past.0.key"].shape
    names = [o.name for o in session.get_outputs()]
    buffers = {
        n: package.OrtValue.ortvalue_from_shape_and_type(places, np.float32) for n in names if n.startswith("present")
    }
    binding, logits, past = session.io_binding(), [], 0
    for n in range(12):
        given = feeds(TINY, "fp32", 3, 0) if n == 0 else token(n, past)
        for name, x in given.items():
            if not name.startswith("past"):
                binding.bind_cpu_input(name, x)
        binding.bind_output("logits", "cpu")
        for name, buffer in buffers.items():
            binding.bind_ortvalue_input(past_of(name), buffer)
            binding.bind_ortvalue_output(name, buffer)
        session.run_with_iobinding(binding)
        logits.append(binding.get_outputs()[0].numpy()[:, -1])
        past += given["ids"].shape[1]
        if n == change:
            values = buffers["present.0.key"].numpy().copy()
            values[0, 0, 0] += 1
            buffers["present.0.key"].update_inplace(values)
    return logits, arrays(buffers)


@pytest.mark.parametrize("change", [-1, 0, 5])
def test_a_binding_with_the_same_pasts_and_presents(change: int, copies: list[ResidentTensor]) -> None:
    """Only data that the program reads are copied out."""
    (logits, caches_), (wanted, others) = (
        decoded(InferenceSession(DECODER), pyruntime, change),
        decoded(peer(DECODER), onnxruntime, change),
    )
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-4)
    near({n: x[:, :, :14] for n, x in caches_.items()}, {n: x[:, :, :14] for n, x in others.items()})
    assert len(copies) == 2 * TINY.layers


def test_two_bindings_with_the_same_pasts_and_presents() -> None:
    """In one session, one after the other."""
    session = InferenceSession(DECODER)
    (logits, caches_), (again, others) = (decoded(session, pyruntime, -1) for _ in range(2))
    np.testing.assert_array_equal(logits, again)
    near(caches_, others)


def test_a_value_with_an_array_is_written_to() -> None:
    """The array of an OrtValue is its memory, also after runs."""
    session = InferenceSession(DECODER)
    seen = OrtValue.ortvalue_from_shape_and_type(feeds(TINY, "fp32", 1, 24)["past.0.key"].shape, np.float32)
    array, binding = seen.numpy(), session.io_binding()
    given = {n: np.zeros(array.shape, "f4") if n.startswith("past") else x for n, x in token(1, 0).items()}
    given |= {past_of(o.name): np.zeros(array.shape, "f4") for o in session.get_outputs()[1:]}
    for name, x in given.items():
        binding.bind_cpu_input(name, x)
    binding.bind_ortvalue_output("present.0.key", seen)
    session.run_with_iobinding(binding)
    assert array[:, :, 0].any() and not array[:, :, 1:].any()
    np.testing.assert_array_equal(array, by_arrays(session, given)["present.0.key"])

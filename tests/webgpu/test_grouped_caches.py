"""GroupQueryAttention with caches that stay on the GPU: batches of texts of different lengths, caches of a fixed number
of places, and windows. New keys lie among rows of the past, which is not copied, and nevertheless stays as it was."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest

from kit.decoders import TINY, Decoder
from pyruntime import InferenceSession, OrtValue
from pyruntime.errors import ExecutionError
from tests.webgpu.test_growing_caches import PASTS, PRESENTS, STAY, Counts

pytest.importorskip("wgpu")

STAYS = dict.fromkeys(PRESENTS, STAY)
SIZE = TINY.width // TINY.heads


class Case(NamedTuple):
    """lengths: of the items' pasts; places: of a cache of fixed length, 0 if it grows; bound: past and present are one
    value"""

    lengths: list[int]
    kind: str = "fp32"
    places: int = 0
    window: int = -1
    bound: bool = False


CASES = [
    Case([5, 5]), Case([4, 9, 1]), Case([4, 9, 1], "fp16"), Case([4, 9, 1], window=3), Case([9], window=3),
    Case([6], places=40), Case([6, 2], places=40), Case([6, 2], "fp16", 40), Case([6, 2], "fp16", 40, 4),
    Case([6], places=40, bound=True), Case([6, 2], places=40, bound=True), Case([6, 2], "fp16", 40, 4, True),
]  # fmt: skip


def grouped(kind: str, window: int = -1) -> bytes:
    return Decoder(TINY, kind, empty=False, window=window).model().SerializeToString()


def caches(case: Case) -> dict[str, np.ndarray]:
    """Random numbers, also in the places after an item's keys."""
    random = np.random.default_rng(0)
    shape = (len(case.lengths), TINY.kv, case.places or max(case.lengths), SIZE)
    return {n: random.standard_normal(shape).astype("f2" if case.kind == "fp16" else "f4") for n in PASTS}


def given(case: Case, n: int, tokens: int = 1) -> dict[str, np.ndarray]:
    """The feeds of step n, without caches."""
    ends = np.array(case.lengths, np.int32) + n + tokens
    ids = (7 * n + np.arange(len(ends) * tokens)).reshape(len(ends), tokens) % TINY.words
    return {"ids": ids, "last": ends - 1, "total": np.array(ends.max(), np.int32)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_token_copies_nothing(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    data = grouped(case.kind, case.window)
    session, theirs = InferenceSession(data, providers=["webgpu"]), onnxruntime.InferenceSession(data)
    near = 2e-2 if case.kind == "fp16" else 1e-4
    others: Any = caches(case)
    past: Any = {name: OrtValue.ortvalue_from_numpy(x) for name, x in others.items()}
    counts = Counts(monkeypatch)
    for n in range(9):
        if n == 3:  # memory is laid out, and the caches have left the arrays
            counts.clear()
        binding = session.io_binding()
        for name, x in given(case, n).items():
            binding.bind_cpu_input(name, x)
        for name, present in zip(PASTS, PRESENTS, strict=True):
            binding.bind_ortvalue_input(name, past[name])
            if case.bound and n:
                binding.bind_ortvalue_output(present, past[name])
            else:
                binding.bind_output(present, "webgpu")
        binding.bind_output("logits", "cpu")
        session.run_with_iobinding(binding)
        *outputs, logits = binding.get_outputs()
        del binding
        past = dict(zip(PASTS, outputs, strict=True))
        expected, *presents = theirs.run(None, {**given(case, n), **others})
        others = dict(zip(PASTS, presents, strict=True))
        np.testing.assert_allclose(logits.numpy(), expected, rtol=near, atol=near)
    assert not +counts, "nothing is copied, no buffer, bind group or pipeline is made"
    for name, x in past.items():
        for n, end in enumerate(case.lengths):
            ours, want = x.numpy()[n, :, : end + 9], others[name][n, :, : end + 9]
            np.testing.assert_allclose(ours, want, rtol=near, atol=near)


@pytest.mark.parametrize("case", CASES[:9], ids=str)
def test_a_tree_of_continuations(case: Case) -> None:
    """Steps of several tokens continue any earlier present, also from a place before its last keys (`back`), while
    newer presents exist or not. All presents stay as they were made; the CPU's arrays show how."""
    data = grouped(case.kind, case.window)
    session, want = InferenceSession(data, providers=["webgpu"]), InferenceSession(data)
    near, random = 3e-2 if case.kind == "fp16" else 1e-4, np.random.default_rng(1)
    known: list[tuple[Any, Any, int]] = [(caches(case), caches(case), 0)]
    for step in range(20):
        at = len(known) - 1 if step % 4 else int(random.integers(len(known)))
        past, others, n = known[at]
        if step % 3 == 0:  # the newest tensors in their memory
            known = known[: at + 1]
        back, tokens = int(random.integers(0, 2)) * (n > 1), 1 if step % 5 else 3
        feeds = given(case, n - back, tokens)
        if case.places and feeds["total"] > case.places:
            continue
        logits, *presents = session.run(None, {**feeds, **past}, preferred_output_location=STAYS)
        expected, *theirs = want.run(None, {**feeds, **others})
        np.testing.assert_allclose(logits, expected, rtol=near, atol=near)
        pair = (dict(zip(PASTS, x, strict=True)) for x in (presents, theirs))
        known.append((*pair, n - back + tokens))
    del past, presents
    for ours, theirs, _ in known[1:]:
        for name in PASTS:
            np.testing.assert_allclose(ours[name].get_data(), theirs[name], rtol=near, atol=near)


@pytest.mark.parametrize("steps", [
    [(0, 0, 1), (1, 1, 3), (2, 1, 3)],  # the last two both overwrite rows of a present that is still there
    [(0, 0, 1), (1, 1, 1), (2, 1, 3)],  # the last one works in a copy
], ids=str)  # fmt: skip
def test_one_text_with_earlier_presents(steps: list[tuple[int, int, int]]) -> None:
    """steps: the number of the past, how many keys from its end the tokens begin, and how many they are."""
    case, data = Case([9]), grouped("fp32")
    session, want = InferenceSession(data, providers=["webgpu"]), InferenceSession(data)
    known: list[tuple[Any, Any, int]] = [(caches(case), caches(case), 0)]
    for at, back, tokens in steps:
        past, others, n = known[at]
        feeds = given(case, n - back, tokens)
        presents = session.run(None, {**feeds, **past}, preferred_output_location=STAYS)[1:]
        theirs = want.run(None, {**feeds, **others})[1:]
        pair = (dict(zip(PASTS, x, strict=True)) for x in (presents, theirs))
        known.append((*pair, n - back + tokens))
    for ours, theirs, _ in known[1:]:
        for name in PASTS:
            np.testing.assert_allclose(ours[name].get_data(), theirs[name], rtol=1e-4, atol=1e-4)


def test_the_past_of_a_run_that_failed() -> None:
    """Whether the run has kept the rows that it overwrites is not known."""
    case = Case([4, 9, 1])
    session = InferenceSession(grouped("fp32"), providers=["webgpu"])
    past: Any = caches(case)
    for n in range(2):
        outputs = session.run(None, {**given(case, n), **past}, preferred_output_location=STAYS)
        past = dict(zip(PASTS, outputs[1:], strict=True))
    wrong = {**given(case, 2), "last": np.array([5, 99, 1], np.int32)}
    with pytest.raises(ExecutionError, match="index 99"):
        session.run(None, {**wrong, **past}, preferred_output_location=STAYS)
    with pytest.raises(ExecutionError, match="a run that failed"):
        past[PASTS[0]].get_data()


def test_one_tensor_as_keys_and_values() -> None:
    """Each of the two presents needs memory of its own."""
    case = Case([3, 5])
    session, want = InferenceSession(grouped("fp32"), providers=["webgpu"]), InferenceSession(grouped("fp32"))
    one: Any = next(iter(caches(case).values()))
    others: Any = dict.fromkeys(PASTS, one)
    first = session.run(None, {**given(case, 0), **others}, preferred_output_location=STAYS)[1]
    others = dict.fromkeys(PASTS, want.run(None, {**given(case, 0), **others})[1])
    outputs = session.run(None, {**given(case, 1), **dict.fromkeys(PASTS, first)}, preferred_output_location=STAYS)
    for ours, theirs in zip(outputs[1:], want.run(None, {**given(case, 1), **others})[1:], strict=True):
        np.testing.assert_allclose(ours.get_data(), theirs, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(first.get_data(), others[PASTS[0]], rtol=1e-4, atol=1e-4)

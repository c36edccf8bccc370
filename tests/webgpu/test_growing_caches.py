"""KV caches that stay on the GPU: a token writes its new keys and values alone, and no tensor ever changes."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from kit import moving_caches
from kit.decoders import TINY, Decoder, feeds
from kit.small_models import model
from kit.static_caches import FLOAT, HALF, IN_PLACE, KINDS, Write, added, concat, decoder, steps
from pyruntime import InferenceSession, OrtValue
from pyruntime.errors import ExecutionError
from pyruntime.native.gpu.tensor import GpuTensor
from pyruntime.providers.webgpu import wgpu_device
from tests.test_growing_caches import CASES, SIZES, node
from tests.test_static_caches import by_arrays, peer

pytest.importorskip("wgpu")

STAY = "gpu-buffer"
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(float16)": np.float16}
HEADS = 2 * TINY.layers
PASTS = [f"past.{n}.{part}" for n in range(TINY.layers) for part in ("key", "value")]
PRESENTS = [name.replace("past", "present") for name in PASTS]
DECODER = Decoder(TINY, "fp32", empty=False).model().SerializeToString()


def arrays(x: Any) -> Any:
    return x.get_data() if isinstance(x, GpuTensor) else x


@pytest.mark.parametrize("build", [build for build, _ in CASES], ids=lambda build: build.__name__)
def test_arrays(build: Callable[[], onnx.ModelProto]) -> None:
    """All sizes of tests/test_growing_caches.py, fed and returned as arrays, and as tensors of the GPU."""
    data = build().SerializeToString()
    theirs, ours = peer(data), InferenceSession(data, providers=["webgpu"])
    random = np.random.default_rng(0)
    for b, p, s in SIZES:
        names = {"b": b, "p": p, "s": s}
        given = {
            v.name: (10 * random.standard_normal([names.get(d, d) for d in v.shape])).astype(TYPES[v.type])
            for v in theirs.get_inputs()
        }
        want = theirs.run(None, given)
        for location in ("cpu", STAY):
            for got, expected in zip(ours.run(None, given, preferred_output_location=location), want, strict=True):
                np.testing.assert_allclose(arrays(got), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "axis", "dims"), [
    (FLOAT, 2, (None, 2, None, 6)), (HALF, 2, (None, 2, None, 3)), (HALF, 3, (None, 2, 3, None)),
    (onnx.TensorProto.INT8, 1, (None, None, 3)), (onnx.TensorProto.INT64, 0, (None, 3)),
])  # fmt: skip
@pytest.mark.parametrize("items", [1, 3])
def test_a_tree_of_continuations(dtype: int, axis: int, dims: Any, items: int) -> None:
    """Each step continues any earlier present, by rows of several numbers. All presents stay as they were made."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    session = InferenceSession(concat(dtype, axis, dims), providers=["webgpu"])
    random = np.random.default_rng(3)

    def rows(n: int) -> np.ndarray:
        shape = [items if d is None else d for d in dims]
        shape[axis] = n
        return random.integers(-9, 9, shape).astype(kind)

    known: list[tuple[Any, np.ndarray]] = [(rows(0), rows(0))]
    for step in range(40):
        past, want = known[-1 if step % 3 else int(random.integers(len(known)))]
        new = rows(int(random.integers(0, 5)))
        present, twice = session.run(None, {"past": past, "new": new}, preferred_output_location={"present": STAY})
        want = np.concatenate([want, new], axis)
        np.testing.assert_array_equal(twice, want + want)
        known.append((present, want))
        if step % 7 == 6:
            known.pop(1)[0].dispose()
    for present, want in known[1:]:
        np.testing.assert_array_equal(present.get_data(), want)
        np.testing.assert_array_equal(present.get_data(), present.stored().astype(kind))


class Counts(Counter[str]):
    """What a run asks of the device."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        device = wgpu_device.shared_device().wgpu
        for owner, name in [
            (type(device), n) for n in ("create_buffer", "create_bind_group", "create_compute_pipeline")
        ]:
            monkeypatch.setattr(owner, name, self.counted(getattr(owner, name), name))
        encoder = type(device.create_command_encoder())
        monkeypatch.setattr(encoder, "copy_buffer_to_buffer", self.copies(encoder.copy_buffer_to_buffer))
        self.clear()

    def counted(self, method: Any, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self[name] += 1
            return method(*args, **options)

        return call

    def copies(self, method: Any) -> Any:
        def call(own: Any, source: Any, at: int, target: Any, to: int, size: int) -> Any:
            self["copied"] += size * (target.label != "readback")
            return method(own, source, at, target, to, size)

        return call


def token(session: InferenceSession, past: dict[str, Any], position: int) -> tuple[np.ndarray, dict[str, Any]]:
    """One run of the decoder: logits, and the next past. `past` is disposed of, as programs do."""
    given = {**feeds(TINY, "fp32", 1, position), **past, "ids": np.array([[position % 50]])}
    logits, *presents = session.run(None, given, preferred_output_location=dict.fromkeys(PRESENTS, STAY))
    for x in past.values():
        if isinstance(x, GpuTensor):
            x.dispose()
    return logits, dict(zip(PASTS, presents, strict=True))


@pytest.mark.parametrize("position", [128, 2048, 8192])
def test_a_token_makes_and_copies_nothing(monkeypatch: pytest.MonkeyPatch, position: int) -> None:
    session, want = InferenceSession(DECODER, providers=["webgpu"]), InferenceSession(DECODER)
    random = np.random.default_rng(0)
    shape = (1, TINY.kv, position, TINY.width // TINY.heads)
    past: dict[str, Any] = {name: random.standard_normal(shape).astype(np.float32) for name in PASTS}
    others: Any = dict(past)
    for n in range(3):
        _, past = token(session, past, position + n)
    counts = Counts(monkeypatch)
    for n in range(3, 8):
        logits, past = token(session, past, position + n)
    assert not +counts, "nothing is copied, no buffer, bind group or pipeline is made"
    for n in range(8):
        given = {**feeds(TINY, "fp32", 1, position + n), **others, "ids": np.array([[(position + n) % 50]])}
        expected, *presents = want.run(None, given)
        others = dict(zip(PASTS, presents, strict=True))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    for name in PASTS:
        np.testing.assert_allclose(past[name].get_data(), others[name], rtol=1e-4, atol=1e-4)


def test_memory_grows_with_the_cache_alone() -> None:
    """A quarter, or 64 KiB, more than the cache needs; nothing else grows, and all is freed."""
    session = InferenceSession(DECODER, providers=["webgpu"])
    before, past = session.memory().tensors, {k: x for k, x in feeds(TINY, "fp32", 1, 0).items() if k in PASTS}
    sizes = set()
    for n in range(300):
        _, past = token(session, past, n)
        sizes.add(session.memory().tensors - before)
    assert len(sizes) == 1 and sizes.pop() <= HEADS * (300 * TINY.kv * 8 * 4 * 5 // 4 + (1 << 16))
    del past
    gc.collect()
    assert session.memory().tensors == before


@pytest.mark.parametrize("last", [[4], [4, 2], [6, 3]])
def test_group_query_attention(last: list[int]) -> None:
    """Items of different lengths, whose new keys lie among those of the past: the past stays as it was."""
    session, want = (InferenceSession(DECODER, providers=[name]) for name in ("webgpu", "wasm"))
    random = np.random.default_rng(0)
    past: Any = {n: random.standard_normal((len(last), TINY.kv, max(last), 8)).astype(np.float32) for n in PASTS}
    others, history = dict(past), []
    for n in range(4):
        given = {"ids": np.full((len(last), 1), 7 + n), "last": np.array(last, np.int32) + n}
        given["total"] = np.array(max(last) + 1 + n, np.int32)
        outputs = session.run(None, {**given, **past}, preferred_output_location=dict.fromkeys(PRESENTS, STAY))
        expected = want.run(None, {**given, **others})
        np.testing.assert_allclose(outputs[0], expected[0], rtol=1e-4, atol=1e-4)
        past, others = (dict(zip(PASTS, x[1:], strict=True)) for x in (outputs, expected))
        history += [(past[name], others[name]) for name in PASTS]
    for got, expected in history:
        np.testing.assert_allclose(got.get_data(), expected, rtol=1e-4, atol=1e-4)


def test_keys_that_do_not_come_last() -> None:
    """seqlens_k violates the operator's definition: a past that the run has overwritten is refused, never wrong."""
    session = InferenceSession(DECODER, providers=["webgpu"])
    _, past = token(session, {k: x for k, x in feeds(TINY, "fp32", 6, 0).items() if k in PASTS}, 0)
    first = {**feeds(TINY, "fp32", 6, 0), "ids": np.full((1, 6), 3)}
    stay = dict.fromkeys(PRESENTS, STAY)
    past = dict(zip(PASTS, session.run(None, first, preferred_output_location=stay)[1:], strict=True))
    longer = {**feeds(TINY, "fp32", 1, 6), **past, "ids": np.array([[5]])}
    for x in session.run(None, longer, preferred_output_location=stay)[1:]:
        x.dispose()  # its last row is left in the memory
    wrong = {**feeds(TINY, "fp32", 1, 6), **past, "last": np.array([2], np.int32), "ids": np.array([[3]])}
    present = session.run(None, wrong, preferred_output_location=stay)[1]
    assert not present.get_data()[:, :, 6].any()
    with pytest.raises(ExecutionError, match="among those of this cache"):
        past[PASTS[0]].get_data()


STATIC = [(write, kind) for write in IN_PLACE for kind in (FLOAT, HALF)]
STATIC.remove((added, HALF))  # onnxruntime adds no half floats


@pytest.mark.parametrize(("write", "kind"), STATIC, ids=lambda x: KINDS.get(x, getattr(x, "__name__", "")))
def test_static_caches(write: Write, kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past and present are one value: the run overwrites it in place. Otherwise the past stays as it was."""
    data = decoder(write, kind).SerializeToString()
    want, session = by_arrays(peer(data), kind), InferenceSession(data, providers=["webgpu"])
    names = [o.name for o in session.get_outputs()]
    for same in (False, True):
        pasts: dict[str, OrtValue] = {}
        counts, kept = Counts(monkeypatch), []
        for n, (given, expected) in enumerate(zip(steps(kind), want, strict=True)):
            binding = session.io_binding()
            for key, x in given.items():
                binding.bind_cpu_input(key, x)
            for part in "kv":
                zeros = np.zeros(want[0][1].shape, want[0][1].dtype)
                binding.bind_ortvalue_input(f"past_{part}", pasts.get(part) or OrtValue.ortvalue_from_numpy(zeros))
            for output in names:
                part = output[-1] if output.startswith("present_") else ""
                if same and part in pasts:
                    binding.bind_ortvalue_output(output, pasts[part])
                else:
                    binding.bind_output(output, "webgpu" if part else "cpu")
            counts.clear()
            session.run_with_iobinding(binding)
            if same and n > 1 and "present_k" in names:
                assert not counts["copied"]
            outputs = dict(zip(names, binding.get_outputs(), strict=True))
            pasts = {part: outputs[f"present_{part}"] for part in "kv"}
            kept += [
                (outputs[o], e) for o, e in zip(names, expected, strict=True) if not (same and o[-2:] in ("_k", "_v"))
            ]
            for o, e in zip(names, expected, strict=True):
                np.testing.assert_allclose(outputs[o].numpy(), e, rtol=2e-2 if kind == HALF else 1e-4, atol=1e-2)
        for got, e in kept:
            np.testing.assert_allclose(got.numpy(), e, rtol=2e-2 if kind == HALF else 1e-4, atol=1e-2)


def test_other_users_of_a_cache() -> None:
    """Sessions that know nothing of its capacity, and sessions on the CPU, read it as any tensor."""
    session = InferenceSession(concat(dims=(None, 2, None, 3)), providers=["webgpu"])
    past, new = (np.random.default_rng(n).standard_normal((1, 2, 5, 3)).astype(np.float32) for n in (1, 2))
    (present,) = session.run(["present"], {"past": past, "new": new}, preferred_output_location=STAY)
    whole = np.concatenate([past, new], 2)
    plain = model([node("Neg", "x", "y")], [("x", FLOAT, ["b", 2, "p", 3])], [("y", FLOAT, None)]).SerializeToString()
    for providers in (["webgpu"], ["wasm"]):
        np.testing.assert_array_equal(InferenceSession(plain, providers=providers).run(None, {"x": present})[0], -whole)
    again, twice = session.run(None, {"past": new, "new": present})
    np.testing.assert_array_equal(again, np.concatenate([new, whole], 2))
    np.testing.assert_array_equal(twice, 2 * again)


def test_onnxruntime_agrees() -> None:
    session, theirs = InferenceSession(DECODER, providers=["webgpu"]), onnxruntime.InferenceSession(DECODER)
    past = others = {k: x for k, x in feeds(TINY, "fp32", 1, 0).items() if k in PASTS}
    for n in range(20):
        logits, past = token(session, past, n)
        expected, *presents = theirs.run(None, {**feeds(TINY, "fp32", 1, n), **others, "ids": np.array([[n % 50]])})
        others = dict(zip(PASTS, presents, strict=True))
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", moving_caches.CASES, ids=str)
def test_caches_that_move(case: moving_caches.Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and beams: natively, each token copies its caches in and out, and makes a buffer for each."""
    data = case.model()
    session, theirs = InferenceSession(data, providers=["webgpu"]), onnxruntime.InferenceSession(data)
    counts, stay = Counts(monkeypatch), {"present_k": STAY, "present_v": STAY}
    past: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for n, given in enumerate(case.steps(20)):
        counts.clear()
        y, *presents = session.run(None, {**past, **given}, preferred_output_location=stay)
        expected, *wanted = theirs.run(None, {**others, **given})
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
        if case.what == "window" and n > 8:
            assert counts == {"create_buffer": 2, "copied": 2 * 2 * presents[0].size * 4}
        past, others = (dict(zip(("past_k", "past_v"), x, strict=True)) for x in (presents, wanted))
    for name, want in others.items():
        np.testing.assert_array_equal(past[name].get_data(), want)

"""A decoder whose key and value cache stays on the GPU from token to token."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kit import zoo
from kit.gpu import GPU
from pyruntime import InferenceSession
from pyruntime.native.gpu.tensor import GpuTensor

pytest.importorskip("wgpu")

FAULT_BYTES = 16  # the record of faults comes with what is read

STEPS, VOCABULARY = 24, 4096
NAMES = [f"{n}.{kind}" for n in range(4) for kind in ("key", "value")]
PRESENT = {f"present.{name}": "gpu-buffer" for name in NAMES}


def generate(session: Any, seen: Any = lambda present: None, **options: Any) -> tuple[list[int], np.ndarray]:
    """Greedy tokens and the last logits; `seen` is told the cache of each step. `session` has onnxruntime's `run`."""
    past = {f"past_key_values.{name}": np.zeros((1, 2, 0, 32), np.float32) for name in NAMES}
    tokens, token, logits = [], 1, np.zeros(0)
    for step in range(STEPS):
        feeds: dict[str, Any] = {"input_ids": np.array([[token]]), "position_ids": np.array([[step]])}
        feeds["attention_mask"] = np.ones((1, step + 1), np.int64)
        logits, *present = session.run(["logits", *PRESENT], feeds | past, **options)
        seen(present)
        past = {f"past_key_values.{name}": x for name, x in zip(NAMES, present, strict=True)}
        token = int(logits.argmax())
        tokens.append(token)
    return tokens, logits.ravel()


def test_cache_stays_on_the_gpu() -> None:
    """Nothing but the logits is read back, and a new length compiles nothing."""
    model = zoo.materialize("llama_mini").read_bytes()
    session = InferenceSession(model, providers=["webgpu"])
    own = session._native.latest().gpu.host.own
    read, before = own.bytes_read, session.memory().tensors
    compiled: set[int] = set()
    live: list[int] = []

    def seen(present: list[Any]) -> None:
        assert all(isinstance(x, GpuTensor) for x in present)
        compiled.add(len(own.pipelines))
        live.append(session.memory().tensors - before)

    tokens, logits = generate(session, seen, preferred_output_location=PRESENT)
    assert own.bytes_read - read == STEPS * (VOCABULARY * 4 + FAULT_BYTES)
    assert len(compiled) == 1 and len(session._native.executors) == 1
    assert len(set(live)) == 1, "past and present share their memory, which has room for all steps"
    want, last = generate(zoo.oracle_session(model))
    assert tokens == want
    np.testing.assert_allclose(logits, last, rtol=1e-3, atol=1e-3)
    assert session.memory().tensors == before, "none is left"


def test_the_same_where_the_gpu_takes_part() -> None:
    """With both providers some of the model runs on the CPU; the cache goes to the GPU all the same."""
    model = zoo.materialize("llama_mini").read_bytes()
    session = InferenceSession(model, providers=[GPU, "wasm"])
    tokens, logits = generate(session, preferred_output_location=PRESENT)
    want, last = generate(zoo.oracle_session(model))
    assert tokens == want
    np.testing.assert_allclose(logits, last, rtol=1e-3, atol=1e-3)

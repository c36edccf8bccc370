"""The ONNX backend suite on the native GPU (all of it: make conformance PROVIDER=webgpu)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.conformance.cases import load
from kit.conformance.failing import failing, surprises
from kit.conformance.pool import Pool

pytest.importorskip("wgpu")

EVERY = 13  # prime, so that the sample meets all of a family whose names repeat in pairs or fours
BATCHES = 4


@pytest.fixture(scope="module")
def workers() -> Iterator[Pool]:
    with Pool("native", "webgpu", jobs=1, limit=60.0) as pool:
        yield pool


ROUNDS_HALVES = {"test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"}


def test_passes_what_the_cpu_passes() -> None:
    """But for halves that are rounded between kernels, which linear memory keeps as float32."""
    assert failing("webgpu.native").keys() - failing("wasm.native").keys() == ROUNDS_HALVES


@pytest.mark.parametrize("batch", range(BATCHES))
def test_as_listed(batch: int, workers: Pool) -> None:
    wrong = surprises(workers.run(sorted(load())[::EVERY][batch::BATCHES]), "webgpu.native")
    assert not wrong, "\n".join(wrong)

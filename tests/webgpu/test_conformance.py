"""The ONNX backend suite on the native GPU (all of it: make conformance PROVIDER=webgpu)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit.conformance.pool import Pool
from kit.conformance.report import baseline

pytest.importorskip("wgpu")

EVERY = 13  # prime, so that the sample meets all of a family whose names repeat in pairs or fours
BATCHES = 4


@pytest.fixture(scope="module")
def workers() -> Iterator[Pool]:
    with Pool("native", "webgpu", jobs=1, limit=60.0) as pool:
        yield pool


def test_passes_what_the_cpu_passes() -> None:
    assert set(baseline("native", "wasm")) <= set(baseline("native", "webgpu"))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_step_back(batch: int, workers: Pool) -> None:
    names = baseline("native", "webgpu")[::EVERY][batch::BATCHES]
    assert names, "no baseline: record one by python -m kit.conformance --provider webgpu --update"
    lost = [result for result in workers.run(names) if result.error]
    assert not lost, "\n".join(f"{result.name}: {result.error}" for result in lost)

"""`bench`: runs one kernel of the vocabulary, on each provider and variant of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kernels.wasm import WasmBench
from tests.webgpu.kernels import gpu_bench


@pytest.fixture(scope="module", params=["wasm", "webgpu", "webgpu without f16"])
def bench(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "wasm":
        yield WasmBench()
    else:
        with gpu_bench(f16=request.param == "webgpu") as gpu:
            yield gpu

"""`bench`: runs one kernel on the adapter, with and without half floats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.webgpu.kernels import gpu_bench


@pytest.fixture(scope="module", params=["adapter", "no f16"])
def bench(request: pytest.FixtureRequest) -> Iterator[Any]:
    with gpu_bench(f16=request.param == "adapter") as gpu:
        yield gpu

"""The official cases that are small, in memory once a process."""

from __future__ import annotations

import pickle
from functools import cache
from importlib.metadata import version

from kit.conformance import cases
from kit.zoo import replacing

LARGEST = 300_000  # bytes of a model
COPY = cases.CACHE / f"small-{version('onnx')}.pickle"


@cache
def load() -> dict[str, cases.Case]:
    """By name, from a copy without the large models: reading all would take seconds in each worker."""
    if not COPY.exists():
        found = [case for case in cases.load().values() if case.data and len(case.model) < LARGEST]
        with replacing(COPY) as part:
            part.write_bytes(pickle.dumps(found))
    return {case.name: case for case in pickle.loads(COPY.read_bytes())}

"""Nodes from these tables, of operators that the official suite lacks, as seeds of the fuzzer."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tests.ops import test_attention, test_conv, test_microsoft, test_ml, test_norm, test_quant
from tests.ops.dynamic import Case, arrays


class SeedNode(NamedTuple):
    """inputs: None where absent. wanted: of each output."""

    op: str
    domain: str
    opset: int
    attributes: dict[str, Any]
    inputs: list[np.ndarray | None]
    wanted: list[bool]


def nodes() -> Iterator[SeedNode]:
    for domain, opset, cases in (("", 9, test_microsoft.EARLY), ("com.microsoft", 17, test_microsoft.CASES)):
        for case in cases:
            args = [None if x is None else np.asarray(x) for x in case.args]
            yield SeedNode(case.op, domain, opset, dict(case.attrs), args, [True] * case.outputs)
    for op, version, attributes, inputs, outputs in test_ml.CASES:
        yield SeedNode(op, test_ml.ML, version, dict(attributes), [np.asarray(x) for x in inputs], [True] * outputs)
    dynamic: list[Any] = [test_attention.CASES, test_conv.CASES, test_conv.FUSED, test_norm.MICROSOFT, test_quant.CASES]
    for entry in (entry for table in dynamic for entry in table):
        if isinstance(entry, Case) and not entry.refused:
            values = arrays(entry, entry.sizes[0])
            given = [values.get(name) for name in entry.inputs]
            wanted = [bool(name) for name in entry.outputs]
            yield SeedNode(entry.op, entry.domain, entry.opset, dict(entry.attrs), given, wanted)


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as file:
        pickle.dump([tuple(node) for node in nodes()], file)

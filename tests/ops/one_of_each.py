"""A case of each of ONNX Runtime's own operators, from the tables in this folder, for tests on the GPU and in pages."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from tests.ops import test_attention, test_encoder_decoder, test_generation, test_microsoft, test_quant
from tests.ops.compare import by_onnxruntime
from tests.ops.dynamic import Case, arrays, build
from tests.ops.node import node_model


class Example(NamedTuple):
    name: str
    model: bytes
    feeds: dict[str, Any]
    tolerance: float

    def expected(self) -> list[Any]:
        return by_onnxruntime(onnx.load_from_string(self.model), self.feeds)


def examples() -> list[Example]:
    """The last case of each operator in the tables, which is rarely the simplest."""
    return sorted({example.name: example for example in _all()}.values())


def _all() -> Iterator[Example]:
    for case in test_microsoft.CASES:
        attrs = {"domain": test_microsoft.MICROSOFT, "outputs": case.outputs, "constants": case.constants, **case.attrs}
        m, feeds = node_model(case.op, case.args, 17, **attrs)
        yield Example(case.op, m.SerializeToString(), feeds, case.tolerance)
    for entry in [*test_attention.CASES, *test_quant.CASES]:
        if isinstance(entry, Case) and entry.domain and not entry.refused and entry.compared is None:
            values = arrays(entry, entry.sizes[0])
            feeds = {name: x for name, x in values.items() if name not in entry.weights}
            yield Example(entry.op, build(entry, values).SerializeToString(), feeds, entry.tolerance)
    yield from _generation()


def _generation() -> Iterator[Example]:
    feeds: dict[str, Any] = {"input_ids": test_generation.IDS, "max_length": test_generation.i32(7)}
    plain = {"min_length": test_generation.i32(1), "repetition_penalty": test_generation.f32(1.0)}
    yield Example("GreedySearch", test_generation.model("GreedySearch", feeds, False), feeds, 1e-4)
    yield Example("Sampling", test_generation.model("Sampling", feeds | plain, False, top_p=0.9), feeds | plain, 1e-4)
    for given, attrs in test_encoder_decoder.CASES[:1] + test_encoder_decoder.CASES[-2:-1]:
        yield Example(attrs.get("op", "BeamSearch"), test_encoder_decoder.model(given, False, **attrs), given, 1e-4)


if __name__ == "__main__":  # with expected outputs, for e2e/test_operators.py
    Path(sys.argv[1]).write_bytes(pickle.dumps([(*example, example.expected()) for example in examples()]))

__all__ = ["Example", "examples"]

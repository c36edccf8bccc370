"""Models built here, for a wider range than the zoo: families of networks in schemes of quantisation, random weights.

A variant is called FAMILY.SCHEME, with @BATCH where the batch is not 1. `materialize` draws its weights from a
generator seeded by its family, and quantises with onnxruntime's tools; files go to build/field. Each has a small form
for tests.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx

from kit import zoo
from kit.field import accuracy, pictures, sequences
from kit.field.builder import Net
from kit.field.feeds import feeds_of
from kit.field.schemes import SCHEMES

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "field"
FAMILIES = pictures.FAMILIES | sequences.FAMILIES

# family -> its schemes, with @BATCH if the batch is not 1
TABLE = {
    "residual": "f32 f32@4 f16 qdq qdq@4 qdq_tensor qdq_s8s8 qdq_u8u8 qop qop@8 qop_s8s8 qop_u8u8",
    "detector": "f32 f32@4 f16 qdq qdq@4 qdq_tensor qdq_s8s8 qdq_s8s8_shifted qdq_u8u8 qop qop_s8s8 qop_u8u8",
    "light_detector": "f32 decayed f16 qdq qdq_s8s8 qop",
    "shuffled": "f32 f32@8 qdq qdq_s8s8 qop",
    "ghosts": "f32 f32@4 qdq qdq_u8u8 qop",
    "wide_windows": "f32 f16 qdq",
    "inverted": "f32 f32@8 qdq qdq@8 qdq_s8s8_shifted qop",
    "nested": "f32 f16 qdq qop",
    "encoder": "f32 f32@8 f16 dynamic qdq qdq@4 qdq_s8s8 qdq_u8u8 qop",
    "windows": "f32 f32@4 f16 dynamic qdq",
    "conformer": "f32 f32@4 f16 dynamic qdq qdq_s8s8",
    "speech": "f32 f32@8 qdq qdq_s8s8 qop",
    "tagger": "f32@32 f32 dynamic@32",
    "writing": "f32 f16 dynamic qdq",
    "text_finder": "f32 qdq",
}


@cache
def names() -> list[str]:
    """All variants."""
    return [f"{family}.{scheme}" for family, schemes in TABLE.items() for scheme in schemes.split()]


def parts(name: str) -> tuple[str, str, int]:
    """Family, scheme and batch of a variant."""
    family, _, rest = name.partition(".")
    scheme, _, batch = rest.partition("@")
    return family, scheme, int(batch or 1)


def is_quantised(name: str) -> bool:
    return parts(name)[1] not in ("f32", "f16", "decayed")


def build(name: str, small: bool = False) -> onnx.ModelProto:
    """The model of a variant."""
    family, scheme, batch = parts(name)
    model = FAMILIES[family](Net(family), batch, small)
    return SCHEMES[scheme](model, feeds_of(model, small))


def materialize(name: str, small: bool = False) -> Path:
    """The path of the model, written on first use, and again if the generators have changed."""
    path = CACHE / f"{name}{'.small' * small}.onnx"
    return zoo.cached(path, list(HERE.glob("*.py")), lambda part: onnx.save(build(name, small), part))


def inputs(name: str, small: bool = False) -> dict[str, np.ndarray]:
    """One set of feeds."""
    return feeds_of(onnx.load(materialize(name, small)), small)


def expected(name: str, small: bool = False) -> list[np.ndarray]:
    """The outputs of onnxruntime without optimisation for `inputs`."""
    return zoo.expected_of(materialize(name, small), inputs(name, small))


def tolerance(name: str, small: bool = False) -> float:
    """How far results may be from those expected, as a share of the largest (kit/field/accuracy.py)."""
    return accuracy.bound(materialize(name, small), inputs(name, small), is_quantised(name))


__all__ = ["FAMILIES", "TABLE", "expected", "inputs", "is_quantised", "materialize", "names", "parts", "tolerance"]

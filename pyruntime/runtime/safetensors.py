"""The header of safetensors files: JSON with the type, the shape and the place of each tensor.

Spec: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from pyruntime.errors import InvalidInput

CODES: Mapping[str, str] = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
}  # fmt: skip
SIZES: Mapping[str, int] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4}
OTHERS = ["BOOL", "U8", "I8", "U16", "I16", "U32", "U64", "F8_E4M3", "F8_E5M2", "F4", "C64"]  # no types of weights
LONGEST = 100000000  # bytes of a header, as the format says
METADATA = "__metadata__"


@dataclass(eq=False, slots=True)
class TensorPlace:
    """Of one tensor: its type (a name of ours, or one of OTHERS), shape, and where its bytes begin and end, after the
    header."""

    name: str
    dtype: str
    shape: list[int]
    first: int
    last: int


def header_of(tensors: list[TensorPlace], metadata: Mapping[str, str]) -> dict[str, Any]:
    """The entries of a header. The sizes of the tensors are their `last`; they begin one after another."""
    header: dict[str, Any] = {}
    if len(metadata) > 0:
        header[METADATA] = metadata
    end = 0
    for t in tensors:
        entry: Mapping[str, Any] = {
            "dtype": CODES[t.dtype], "shape": t.shape, "data_offsets": [end, end + t.last - t.first]
        }  # fmt: skip
        header[t.name] = entry
        end += t.last - t.first
    return header


def check_size(header: int, file: int) -> None:
    """header: bytes, as the first 8 bytes of a file of this size say. Errors: InvalidInput"""
    if header > LONGEST:
        raise _damaged("it does not begin with the length of a header")
    if file < 8 or header > file - 8:
        raise _damaged("it is cut off")


def places_in(header: Any, size: int) -> list[TensorPlace]:
    """The tensors. header: its JSON; size: bytes after it. Errors: InvalidInput"""
    if not isinstance(header, dict):
        raise _damaged("its header is no table")
    metadata = header.get(METADATA, {})
    if not isinstance(metadata, dict) or any(not isinstance(value, str) for _, value in metadata.items()):
        raise _damaged("its metadata are no texts")
    found: list[TensorPlace] = []
    for name, entry in header.items():
        if name != METADATA:
            found.append(_place(name, entry, size))
    return found


def _place(name: str, entry: Any, size: int) -> TensorPlace:
    if not isinstance(entry, dict):
        raise _damaged(f'tensor "{name}" has no type and place that are known')
    code: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    is_known = isinstance(code, str) and (code in SIZES or code in OTHERS)
    if not (is_known and are_counts(shape) and are_counts(offsets) and len(offsets) == 2):
        raise _damaged(f'tensor "{name}" has no type and place that are known')
    first: int = offsets[0]
    last: int = offsets[1]
    dims: list[int] = shape
    wanted = last - first if code in OTHERS else prod(dims) * SIZES[code]
    if not (first <= last <= size and last - first == wanted):
        raise _damaged(f'tensor "{name}" does not fill its place')
    names = [known for known in CODES if CODES[known] == code]
    return TensorPlace(name, names[0] if len(names) > 0 else code, dims, first, last)


def check_type(name: str, dtype: str) -> None:
    """Errors: InvalidInput for a tensor of one of OTHERS, which cannot be a weight"""
    if dtype in OTHERS:
        raise InvalidInput(f'tensor "{name}" has the type {dtype}', hint=f"weights have {', '.join(SIZES.keys())}")


def are_counts(x: Any) -> bool:
    """Whether JSON is a list of integers from 0 on."""
    return isinstance(x, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in x)


def damaged_header() -> InvalidInput:
    """For a header that is not JSON."""
    return _damaged("its header is not JSON")


def _damaged(text: str) -> InvalidInput:
    return InvalidInput(f"this is no safetensors file: {text}", hint="checkpoints and adapters are such files")

"""Tensors of the Open Inference Protocol as arrays. KServe's own conversion takes null for NaN, cuts 1.5 to 1 for an
integer, so that a wrong request would get a wrong result; this one refuses."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.errors import InvalidInput
from pyruntime.frontend.feed_checks import NodeArg

if TYPE_CHECKING:
    from kserve import InferInput

# The protocol's names of ONNX's element types. It has none for the others.
DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}
KINDS = {"b": "b", "u": "iu", "i": "iu", "f": "iuf", "O": "U"}  # of NumPy: of the tensor, of the numbers in JSON
DTYPES = {
    "BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64", "BYTES": "O",
    **{name: name.lower() for name in DATATYPES.values() if "INT" in name},
}  # fmt: skip


def metadata(arguments: Iterable[NodeArg]) -> list[dict[str, Any]]:
    """Inputs or outputs of a model as the protocol describes them; free dims are -1. Errors: InvalidInput for a type
    that it does not have"""
    arguments = list(arguments)
    for one in arguments:
        if one.type not in DATATYPES:
            raise InvalidInput(f'"{one.name}" has the type {one.type}, which the Open Inference Protocol does not have')
    return [
        {"name": a.name, "datatype": DATATYPES[a.type], "shape": [d if isinstance(d, int) else -1 for d in a.shape]}
        for a in arguments
    ]


def array_of(given: InferInput, datatype: str) -> np.ndarray:
    """The array of an input of a request. datatype: that of the model's input. Errors: InvalidInput"""
    if given.datatype != datatype:
        raise InvalidInput(f'input "{given.name}" has the datatype {given.datatype}, the model takes {datatype}')
    shape = given.shape
    if not all(type(d) is int and d >= 0 for d in shape):
        raise InvalidInput(f'input "{given.name}" has the shape {shape}')
    try:
        values = from_list(given.data, DTYPES[datatype]) if given.data else given.as_numpy().ravel()
    except Exception as error:  # of NumPy, struct or the library, by what the client sent
        raise InvalidInput(f'input "{given.name}" cannot be read: {error}') from None
    if values.size != math.prod(shape):
        raise InvalidInput(f'input "{given.name}" has {values.size} elements, the shape {shape} {math.prod(shape)}')
    return values.reshape(shape)


def from_list(data: list[Any], dtype: str) -> np.ndarray:
    """A flat array of the numbers or strings of a list, which may be nested. Errors: InvalidInput, ValueError"""
    goal = np.dtype(dtype)
    if goal.kind == "O" and all(isinstance(x, bytes) for x in data):  # of gRPC
        data = [x.decode() for x in data]
    found = np.array(data).ravel()
    if goal.kind in "iu" and found.dtype.kind in "fO":  # of whole numbers beyond int64, too
        found = np.array(data, object).ravel()
        fits = all(type(x) is int for x in found)
    else:
        fits = not found.size or found.dtype.kind in KINDS[goal.kind]
    if not fits:
        raise InvalidInput(f"{dtype} cannot be made from these elements")
    if goal.kind == "O":
        "".join(found.tolist()).encode()  # refuses surrogates, which an answer could not have
    if found.size and goal.kind in "iu":
        limits = np.iinfo(goal)
        if found.min() < limits.min or found.max() > limits.max:
            raise InvalidInput(f"a number does not fit in {dtype}")
    with np.errstate(over="ignore"):
        made = found.astype(goal)
    if goal.kind == "f" and (np.isinf(made) & np.isfinite(found)).any():
        raise InvalidInput(f"a number does not fit in {dtype}")
    return made

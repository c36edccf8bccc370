"""Feeds and outputs of sessions in Pyodide, held against NumPy (the sessions themselves: e2e/test_wheel.py)."""

from __future__ import annotations

import array
from typing import Any

import numpy as np
import pytest

from pyruntime import InvalidInput
from pyruntime.ir import dtype as dt
from pyruntime.onnx.graph import OptionalType, SequenceType, TensorType
from pyruntime.pyodide.tensors import Tensor, to_output, to_tensor

PLAIN = "float16 float32 float64 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_arrays_and_lists_come_back(name: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(name)
    wanted = TensorType(dt.BY_NAME[name], (None,) * len(shape))
    for given in (x, x.copy(order="F"), x.tolist()):
        if 0 in shape[:-1] and given is not x:
            continue  # what nested lists cannot say
        tensor = to_tensor("x", given, wanted)
        assert tensor.shape == shape and tensor.tolist() == x.tolist()
        np.testing.assert_array_equal(to_output(tensor), x, strict=True)


def test_lists_without_elements() -> None:
    """Lists end at an axis of no rows; the model's sizes follow."""
    empty = np.zeros((1, 2, 0, 4), np.float32).tolist()
    wanted = TensorType(dt.F32, ("batch", 2, "past", 4))
    assert to_tensor("x", empty, wanted).shape == (1, 2, 0, 4)
    with pytest.raises(InvalidInput):
        to_tensor("x", [[[[]]]], wanted)


def test_parts_and_strings_of_numpy() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(to_output(to_tensor("x", x[::2, ::-3], None)), x[::2, ::-3], strict=True)
    words = np.array([["a", "b"]], object)
    for given in (words, words.astype("U"), [["a", "b"]]):
        np.testing.assert_array_equal(to_output(to_tensor("x", given, TensorType(dt.STRING, None))), words)


def test_small_types_come_as_their_bits() -> None:
    bits = array.array("H", [0x3F80, 0xC000])
    tensor = to_tensor("x", bits, TensorType(dt.BF16, (2,)))
    assert tensor.dtype is dt.BF16 and tensor.flat() == [1.0, -2.0]
    assert to_tensor("x", [1.0, -2.0], TensorType(dt.BF16, (2,))).data == bits.tobytes()


def test_values_take_the_type_of_their_input() -> None:
    tensor = TensorType(dt.F32, None)
    assert to_tensor("x", [1, 2.5], tensor).flat() == [1.0, 2.5]
    assert to_tensor("x", True, TensorType(dt.BOOL, ())).tolist() is True
    assert to_tensor("x", [[7]], TensorType(dt.I64, ())).shape == ()
    assert to_tensor("x", None, OptionalType(tensor)) is None
    assert [t.shape for t in to_tensor("x", [[1.0], [1.0, 2.0]], SequenceType(tensor))] == [(1,), (2,)]
    fed: Tensor = to_tensor("x", [1.0], None)
    assert to_tensor("x", fed, tensor) is fed


@pytest.mark.parametrize(
    ("given", "wanted", "text"),
    [
        ([1.5], dt.I64, "element type float32, expected int64"),
        ([300], dt.U8, "has a value that uint8 does not hold"),
        ([1, "a"], None, "elements of types that do not fit into one tensor: int, str"),
        ([[1], 2], None, "rows of different lengths"),
        (["a"], dt.F32, "element type string, expected float32"),
        ([None], None, "NoneType"),
        (np.zeros(2, ">f4"), dt.F32, "is not a tensor"),
        (np.zeros(2, "M8[s]"), dt.F32, "is not a tensor"),
        ({}, dt.F32, "is not a tensor: dict"),
        (3, dt.F32, "has rank 0, expected 1"),
    ],
)
def test_what_does_not_fit_is_refused(given: Any, wanted: Any, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        to_tensor("x", given, TensorType(wanted, (None,)))

"""onnxruntime's `SparseTensor`. Kernels read dense tensors, so a session gets the dense form."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from pyruntime.api.enums import OrtSparseFormat
from pyruntime.errors import InvalidInput, NotSupported
from pyruntime.frontend.feed_checks import type_name
from pyruntime.native.memory.arrays import dtype_of
from pyruntime.onnx.graph import TensorType

Array = np.ndarray[Any, Any]


class CooView(NamedTuple):
    """places: (values,) of elements in row-major order, or (values, 2) of rows and columns"""

    places: Array

    def indices(self) -> Array:
        return self.places


class CsrcView(NamedTuple):
    """columns: of the values; starts: where each row's values begin, and their number"""

    columns: Array
    starts: Array

    def inner(self) -> Array:
        return self.columns

    def outer(self) -> Array:
        return self.starts


class SparseTensor:
    """Values that are not zero, and their places: coordinates (COO), or compressed rows (CSR)."""

    def __init__(self, shape: Sequence[int], values: Array, view: CooView | CsrcView, places: Array) -> None:
        """places: of the values, in row-major order of the elements. Errors: InvalidInput"""
        if values.ndim != 1 or places.shape != values.shape:
            raise InvalidInput(f"{values.shape} values of a sparse tensor do not fit {places.shape} places")
        if values.size and not 0 <= places.min() <= places.max() < prod(shape):
            raise InvalidInput(f"a sparse tensor of shape {list(shape)} has values outside")
        self._dtype = dtype_of(values)
        self._shape, self._values, self._view, self._places = tuple(shape), values, view, places

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Any, values: Any, coo_indices: Any, ort_device: Any = None
    ) -> SparseTensor:
        """values (n,); coo_indices (n,) of elements in row-major order, or (n, 2) of rows and columns of a matrix.
        Errors: InvalidInput"""
        shape, (values, indices) = _shape(dense_shape), _arrays(values, coo_indices)
        if indices.ndim == 1 and len(indices) == 2 * len(values) > 0:
            indices = indices.reshape(-1, 2)
        flat = indices
        if indices.ndim == 2 and len(shape) == 2 and indices.shape[1] == 2:
            rows, columns = indices.T
            if indices.size and not (0 <= columns.min() and columns.max() < shape[1]):
                raise InvalidInput(f"a sparse tensor of shape {list(shape)} has values outside")
            flat = rows * shape[1] + columns
        return cls(shape, values, CooView(indices), flat)

    @classmethod
    def sparse_csr_from_numpy(
        cls, dense_shape: Any, values: Any, inner_indices: Any, outer_indices: Any, ort_device: Any = None
    ) -> SparseTensor:
        """A matrix. values (n,); inner_indices (n,) of columns; outer_indices (rows + 1,): where the values of each row
        begin. Errors: InvalidInput"""
        shape, (values, columns, starts) = _shape(dense_shape), _arrays(values, inner_indices, outer_indices)
        if len(shape) != 2 or starts.shape != (shape[0] + 1,):
            raise InvalidInput(
                f"{starts.size} starts of rows do not fit shape {list(shape)}", hint="rows + 1 of a matrix"
            )
        counts = np.diff(starts)
        if starts[0] != 0 or starts[-1] != len(values) or (counts < 0).any() or columns.shape != values.shape:
            raise InvalidInput("the starts of rows do not fit the values", hint="from 0 to their number, none smaller")
        if columns.size and not 0 <= columns.min() <= columns.max() < shape[1]:
            raise InvalidInput(f"a sparse tensor of shape {list(shape)} has values outside")
        flat = np.repeat(np.arange(shape[0]), counts) * shape[1] + columns
        return cls(shape, values, CsrcView(columns, starts), flat)

    def toarray(self) -> Array:
        """The dense tensor, by the name that SciPy's sparse arrays have."""
        dense = (
            np.full(self._shape, "", object)
            if self._values.dtype == object
            else np.zeros(self._shape, self._values.dtype)
        )
        dense.reshape(-1)[self._places] = self._values
        return dense

    def values(self) -> Array:
        return self._values

    def as_coo_view(self) -> CooView:
        """Errors: InvalidInput if it has another format"""
        if not isinstance(self._view, CooView):
            raise InvalidInput("this sparse tensor has no COO indices", hint="it has compressed rows: as_csrc_view()")
        return self._view

    def as_csrc_view(self) -> CsrcView:
        """Errors: InvalidInput if it has another format"""
        if not isinstance(self._view, CsrcView):
            raise InvalidInput("this sparse tensor has no compressed rows", hint="it has coordinates: as_coo_view()")
        return self._view

    def as_blocksparse_view(self) -> Any:
        raise InvalidInput("this sparse tensor has no blocks", hint="see format()")

    def format(self) -> OrtSparseFormat:
        is_coo = isinstance(self._view, CooView)
        return OrtSparseFormat.ORT_SPARSE_COO if is_coo else OrtSparseFormat.ORT_SPARSE_CSRC

    def dense_shape(self) -> list[int]:
        return list(self._shape)

    def data_type(self) -> str:
        """The type, for instance "sparse_tensor(float)"."""
        return f"sparse_{type_name(TensorType(self._dtype, None))}"

    def device_name(self) -> str:
        return "cpu"

    def to_cuda(self, ort_device: Any) -> SparseTensor:
        raise NotSupported("sparse tensors stay on the CPU", hint="feed them: kernels on the GPU get the dense form")


def _shape(dense_shape: Any) -> tuple[int, ...]:
    sizes = np.asarray(dense_shape)
    if sizes.ndim != 1 or sizes.size and (sizes.dtype.kind not in "iu" or sizes.min() < 0):
        raise InvalidInput(f"{dense_shape!r} is no shape")
    return tuple(int(n) for n in sizes)


def _arrays(values: Any, *indices: Any) -> list[Array]:
    found = [np.asarray(a) for a in (values, *indices)]
    for a in found[1:]:
        if a.dtype.kind not in "iu" and a.size:
            raise InvalidInput(f"indices of a sparse tensor must be integers, not {a.dtype}")
    return [found[0], *(a.astype(np.int64, copy=False) for a in found[1:])]

"""Feeds and outputs of a native session: checks, and conversions between NumPy and the engine's storage layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from pyruntime.errors import InvalidInput, shown_names
from pyruntime.frontend.feed_checks import check_names, check_tensor, required_inputs
from pyruntime.frontend.trace_graph import TensorSpec
from pyruntime.ir import dtype as dt
from pyruntime.ir.dtype import DType
from pyruntime.native.execution.resident_outputs import ResidentTensor
from pyruntime.native.gpu.device import warn_once
from pyruntime.native.gpu.tensor import GpuTensor
from pyruntime.native.memory.arrays import dtype_of, from_storage, to_python, to_storage
from pyruntime.onnx.graph import Graph, OptionalType, SequenceType, TensorType, Type
from pyruntime.session.needs import Given, GivenTensor

_PLAIN = (dt.F32, dt.F64, dt.F16, dt.BOOL, dt.I8, dt.I16, dt.I32, dt.I64, dt.U8, dt.U16, dt.U32, dt.U64)
SHAPES = 256  # of an input, with types, that are known to fit; at most
IN_ENGINE = (GpuTensor, ResidentTensor)  # tensors in the engine's memory


class Feeds:
    """The feeds and outputs of one graph. uses: for each output the inputs that it needs"""

    def __init__(self, graph: Graph, uses: Callable[[], Mapping[str, Sequence[str]]]) -> None:
        self._unused = frozenset(graph.unused)
        self._uses = cache(uses)
        self.types = {v.name: v.type for v in graph.inputs}
        self._fitting: dict[str, set[Any]] = {name: set() for name in self.types}  # (dtype, shape) that were checked
        self.required = [v.name for v in required_inputs(graph)]
        self._required = frozenset(v.name for v in required_inputs(graph) if not isinstance(v.type, OptionalType))
        self.output_names = [v.name for v in graph.outputs]

    # ── checks ──

    def outputs(self, names: Sequence[str] | None) -> list[str]:
        """These names, or those of all outputs. Errors: InvalidInput for a name that the graph does not have"""
        if not isinstance(names, (list, tuple, type(None))):
            raise InvalidInput(f"output names must be a list or None, got {names!r}")
        for n in names or ():
            if n not in self.output_names:
                raise InvalidInput(f'output "{n}" does not exist', hint=f"outputs are {shown_names(self.output_names)}")
        return list(names) if names else self.output_names

    def gpu_outputs(self, location: Any) -> set[str]:
        """The outputs whose preferred location is the GPU. location: "cpu" or "gpu-buffer", for all or by output name,
        or None. Errors: InvalidInput for any other location or name"""
        by_name = location if isinstance(location, Mapping) else dict.fromkeys(self.output_names, location)
        self.outputs(list(by_name))
        for place in by_name.values():
            if place not in (None, "cpu", "gpu-buffer"):
                raise InvalidInput(f"unknown output location {place!r}", hint='"cpu" or "gpu-buffer"')
        return {name for name, place in by_name.items() if place == "gpu-buffer"}

    def check(self, feeds: Mapping[str, Any], names: Sequence[str] | None = None) -> dict[str, Any]:
        """The feeds as arrays or tensors of the engine. names: of the outputs of the run, or all. Errors: InvalidInput
        for a feed that does not fit the model's input types, DeviceLost for a tensor on a lost device"""
        if not isinstance(feeds, Mapping):
            raise InvalidInput(f"feeds must be a dict of tensors by name, got {type(feeds).__name__}")
        if self._unused:
            feeds = {name: x for name, x in feeds.items() if name not in self._unused}
        check_names(feeds, self.types, self.required if self.has_all(feeds) else self.needed(names))
        return {name: self._checked(name, feeds[name]) for name in self.types if name in feeds}

    def _checked(self, name: str, x: Any) -> Any:
        """A feed, checked once for each type and shape if its elements need no check."""
        fitting = self._fitting[name]
        key = (x.dtype, x.shape) if type(x) is np.ndarray else None
        if key in fitting:
            return x
        value = self._value(name, x, self.types[name])
        if value is x and key is not None and x.dtype.kind != "O":
            if len(fitting) >= SHAPES:
                fitting.clear()
            fitting.add(key)
        return value

    def has_all(self, feeds: Mapping[str, Any]) -> bool:
        return len(feeds) == len(self.types) or feeds.keys() >= self._required

    def needed(self, names: Sequence[str] | None) -> list[str]:
        """The inputs that outputs with these names need."""
        if names is None or set(names) >= set(self.output_names):
            return self.required
        used = {i for name in names for i in self._uses()[name]}
        return [name for name in self.required if name in used]

    def _value(self, name: str, x: Any, t: Type | None) -> Any:
        if isinstance(t, OptionalType):
            return None if x is None else self._value(name, x, t.elem)
        if isinstance(t, SequenceType):
            if not isinstance(x, (list, tuple)):
                raise InvalidInput(f'input "{name}" is a sequence: a list is expected, got {type(x).__name__}')
            return [self._value(f"{name}[{n}]", v, t.elem) for n, v in enumerate(x)]
        if x is None or isinstance(x, dict):
            raise InvalidInput(f'input "{name}" must be a tensor, got {type(x).__name__}')
        array = x if isinstance(x, (*IN_ENGINE, np.ndarray)) else _array(name, x, t)
        if isinstance(array, GpuTensor):
            array.memory()  # raises if it was disposed or lost
        if isinstance(t, TensorType):
            if isinstance(array, np.ndarray) and array.dtype.kind == "O" and t.dtype is not dt.STRING:
                _check_numbers(name, array)
            if t.shape == () and array.size == 1 and isinstance(array, np.ndarray):
                array = array.reshape(())  # like onnxruntime, accept a single number in any rank
            check_tensor(name, _dtype(array), array.shape, t)
        return array

    # ── outputs ──

    def output(self, value: Any, result: Any) -> Any:
        """Convert a result of an executor for the caller of `run`. value: of the Program's header"""
        if result is None or isinstance(result, IN_ENGINE):
            return result
        if isinstance(result, list):
            return [self.output(v, r) for v, r in zip(value["items"], result, strict=True)]
        return from_storage(result, dt.BY_NAME[value["dtype"]])


def _array(name: str, x: Any, t: Type | None) -> np.ndarray:
    """Python numbers (or anything like an array) as an array. Numbers get the input's type if it can represent them."""
    try:
        if hasattr(x, "toarray"):  # a sparse one, of SciPy or `SparseTensor`
            warn_once(f'input "{name}" is sparse and becomes dense')
            return np.asarray(x.toarray())
        array = np.asarray(x)
        declared = np.dtype(t.dtype.name) if isinstance(t, TensorType) and t.dtype in _PLAIN else array.dtype
        are_numbers = isinstance(x, (list, tuple, int, float)) and array.dtype.kind in "biuf"
        if are_numbers and isinstance(t, TensorType) and t.dtype is dt.STRING:
            return np.asarray(x, object)
        fits = np.can_cast(array.dtype, declared, "same_kind") or array.dtype.kind + declared.kind == "iu"
        fits = fits or declared.kind == "b" and bool(np.isin(array, (0, 1)).all())
        return np.asarray(x, declared) if are_numbers and (fits or not array.size) else array
    except (ValueError, TypeError, OverflowError) as e:
        raise InvalidInput(f'input "{name}" is not a tensor: {e}') from None


def _check_numbers(name: str, x: np.ndarray) -> None:
    """Errors: InvalidInput for an array of objects that are neither numbers nor texts"""
    if x.size and not isinstance(x.flat[0], (str, bytes)):
        hint = "give an array of numbers: np.asarray(x, np.float32)"
        raise InvalidInput(f'input "{name}" has elements of type {type(x.flat[0]).__name__}', hint=hint)


def _dtype(x: np.ndarray | GpuTensor | ResidentTensor) -> DType:
    return dt.BY_NAME[x.dtype] if isinstance(x, IN_ENGINE) else dtype_of(x)


def described(x: Any) -> Given:
    """A checked feed as `Needs` reads it."""
    if x is None or isinstance(x, list):
        return x and [described(item) for item in x]
    dtype = _dtype(x)

    def values() -> list[Any]:
        return to_python(x.stored() if isinstance(x, IN_ENGINE) else to_storage(x), TensorSpec(dtype, x.shape))[1]

    return GivenTensor(dtype, tuple(x.shape), values)


def stored(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Convert checked feeds to storage layout, for executors; tensors in the engine's memory stay unchanged."""
    return {name: to_storage(x) if type(x) is np.ndarray else _stored(x) for name, x in feeds.items()}


def _stored(x: Any) -> Any:
    if isinstance(x, list):
        return [_stored(item) for item in x]
    return x if x is None or isinstance(x, IN_ENGINE) else to_storage(x)


def constant_of(name: str, executor: Any, feeds: Mapping[str, Any]) -> TensorSpec:
    """Run an executor with these feeds, and return an output as a constant."""
    result = executor.run(stored(feeds))[name]
    d = dt.BY_NAME[executor.header["outputs"][0]["value"]["dtype"]]
    shape, values = to_python(result, TensorSpec(d, result.shape))
    return TensorSpec(d, shape, tuple(values))

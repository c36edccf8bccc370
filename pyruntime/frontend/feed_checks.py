"""Describes a model's inputs and outputs to its users, and checks names, types and shapes of feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import InvalidInput, shown_names
from pyruntime.ir.dtype import F16, F32, F64, STRING, DType
from pyruntime.onnx.graph import Graph, MapType, OptionalType, SequenceType, TensorType, Type, Value, tensor_type

_ORT_NAMES = {"float32": "float", "float64": "double"}


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output: name, type ("tensor(float)"), shape (ints, names, None)."""

    name: str
    type: str
    shape: list[int | str | None]


def arguments(values: Sequence[Value]) -> list[NodeArg]:
    return [NodeArg(v.name, type_name(v.type), _shape(v.type)) for v in values]


def type_name(t: Type | None) -> str:
    if isinstance(t, TensorType):
        name = t.dtype.name if t.dtype else "undefined"
        return f"tensor({_ORT_NAMES.get(name, name)})"
    if isinstance(t, SequenceType):
        return f"seq({type_name(t.elem)})"
    if isinstance(t, OptionalType):
        return f"optional({type_name(t.elem)})"
    if isinstance(t, MapType):
        return f"map({t.key.name},{type_name(t.value)})"
    return "undefined"


def _shape(t: Type | None) -> list[int | str | None]:
    tensor = tensor_type(t)
    return list(tensor.shape) if tensor is not None and tensor.shape is not None else []


def required_inputs(graph: Graph) -> list[Value]:
    """The inputs without a default."""
    return [v for v in graph.inputs if v.name not in graph.weights]


def check_names(given: Iterable[str], types: Mapping[str, Type | None], required: Sequence[str]) -> None:
    """Errors: InvalidInput for a feed that is no input of the model, or a missing input."""
    wrong = [f'input "{name}" does not exist' for name in given if name not in types]
    wrong += [f'input "{n}" is missing' for n in required if n not in given and not isinstance(types[n], OptionalType)]
    if wrong:
        raise InvalidInput(wrong[0], hint=f"inputs are {shown_names(required)}")


def check_given(given: Any) -> None:
    """Whether these are feeds of a caller. Errors: InvalidInput for another object, or names that the engine gives"""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"feeds must be a dict of tensors by name, got {type(given).__name__}")
    for name in given:
        if not isinstance(name, str) or not shown_names([name]):
            raise InvalidInput(f"input {name!r} does not exist", hint="feeds have the names of the model's inputs")


def check_tensor(name: str, dtype: DType, shape: Sequence[int], t: TensorType) -> None:
    """Errors: InvalidInput if element type, rank or extent differ from the input's. Hints use onnxruntime's words,
    which some programs parse: openwakeword-js finds its feed's shape in "Got: 24 Expected: 25"."""
    if t.dtype is not None and dtype is not t.dtype:
        hint = f"Actual: ({type_name(TensorType(dtype, None))}) , expected: ({type_name(t)})"
        if dtype is not STRING and (t.dtype.kind in "iu" or t.dtype in (F16, F32, F64)):
            hint = f'x.astype("{t.dtype}") converts an array; {hint}'
        raise InvalidInput(f'input "{name}" has element type {dtype}, expected {t.dtype}', hint=hint)
    if t.shape is None:
        return
    if len(shape) != len(t.shape):
        text = f'input "{name}" has rank {len(shape)}, expected {len(t.shape)} {list(t.shape)}'
        raise InvalidInput(text, hint=f"Got: {len(shape)} Expected: {len(t.shape)}")
    pairs = enumerate(zip(shape, t.shape, strict=True))
    wrong = [(axis, have, want) for axis, (have, want) in pairs if isinstance(want, int) and have != want]
    for axis, have, want in wrong:
        hint = " ".join(f"index: {n} Got: {a} Expected: {b}" for n, a, b in wrong)
        raise InvalidInput(f'input "{name}" has {have} elements along axis {axis}, expected {want}', hint=hint)


def shared_dims(types: Mapping[str, Type | None]) -> dict[str, list[tuple[str, int]]]:
    """Names of dims that occur more than once in the inputs, each with these places: input and axis."""
    places: dict[str, list[tuple[str, int]]] = {}
    for name, declared in types.items():
        t = tensor_type(declared)
        for axis, dim in enumerate(t.shape or () if t is not None else ()):
            if isinstance(dim, str):
                places.setdefault(dim, []).append((name, axis))
    return {dim: found for dim, found in places.items() if len(found) > 1}


def differing_dims(shared: Mapping[str, Sequence[tuple[str, int]]], feeds: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of dims that have different sizes in several inputs, each with these inputs. shared: `shared_dims` of the
    inputs; feeds: values with a `shape`."""
    found: dict[str, list[str]] = {}
    for dim, places in shared.items():
        sizes: dict[int, str] = {}
        for name, axis in places:
            if (x := feeds.get(name)) is not None:
                sizes.setdefault(x.shape[axis], name)
        if len(sizes) > 1:
            found[dim] = list(sizes.values())
    return found

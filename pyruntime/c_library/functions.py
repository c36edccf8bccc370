"""The functions of pyruntime.h. The embedded interpreter imports this module when it starts."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from pyruntime import InferenceSession, OrtValue, RunOptions, SessionOptions, __version__
from pyruntime.errors import InvalidInput
from pyruntime.frontend.feed_checks import NodeArg, type_name
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, from_storage, to_storage
from pyruntime.onnx.graph import TensorType

_CODES = {type_name(TensorType(d, None)): d.code for d in dt.ALL}


@dataclass(slots=True)
class _Open:
    """A session, the declarations that C has pointers to, and the options of the runs that are under way."""

    session: InferenceSession
    declared: dict[str, list[Any]] = field(default_factory=dict)
    runs: dict[int, RunOptions] = field(default_factory=dict)  # by identity: options may be equal


class Library:
    """ffi: of the embedded module. Objects that C has pointers to are kept until C frees them."""

    def __init__(self, ffi: Any) -> None:
        self._ffi = ffi
        self._sessions: dict[int, _Open] = {}
        self._numbers = itertools.count(1)
        self._results: dict[int, list[Any]] = {}  # by address
        self._errors: dict[int, tuple[Any, Any]] = {}  # by thread: kind and text of the last failure
        self._version = self._text(__version__)

    # ── functions of the header ──

    def open(self, path: Any, options: Any) -> int:
        return self._opened(self._read(path, "path"), options)

    def open_bytes(self, data: Any, size: int, options: Any) -> int:
        return self._opened(bytes(self._ffi.buffer(self._given(data, "data"), size)), options)

    def inputs(self, number: int, values: Any) -> int:
        return self._declared(number, "inputs", values)

    def outputs(self, number: int, values: Any) -> int:
        return self._declared(number, "outputs", values)

    def run(self, number: int, inputs: Any, count: int, names: Any, name_count: int, results: Any) -> int:
        opened = self._find(number)
        feeds = dict(self._feed(inputs[n], n) for n in range(count)) if count else {}
        wanted = [self._read(names[n], "name of an output") for n in range(name_count)] if names else None
        self._given(results, "results")
        with _running(opened) as options:
            values = opened.session.run_with_ort_values(wanted, feeds, options)
        found = wanted or [output.name for output in opened.session.get_outputs()]
        kept: list[Any] = []
        made = [self._result(name, value, kept) for name, value in zip(found, values, strict=True)]
        results[0] = array = self._array(made, kept)
        self._results[int(self._ffi.cast("intptr_t", array))] = kept
        return len(made)

    def free(self, results: Any) -> None:
        self._results.pop(int(self._ffi.cast("intptr_t", results)), None)

    def stop(self, number: int) -> None:
        for options in list(self._find(number).runs.values()):
            options.terminate = True

    def release(self, number: int) -> None:
        if number:
            self._find(number).session.release()
            del self._sessions[number]

    def error_kind(self) -> Any:
        return self._errors.get(threading.get_ident(), (self._ffi.NULL,))[0]

    def error(self) -> Any:
        return self._errors.get(threading.get_ident(), (self._ffi.NULL,))[-1]

    def version(self) -> Any:
        return self._version

    # ── sessions ──

    def fail(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> None:
        """What cffi calls with the exception of a function, which then returns its value for failures."""
        assert kind is not None
        self._errors[threading.get_ident()] = self._text(kind.__name__), self._text(str(error))

    def _opened(self, model: str | bytes, options: Any) -> int:
        sess_options, providers = _options(self._read(options, "options") if options else "{}")
        opened = _Open(InferenceSession(model, sess_options, providers))
        number = next(self._numbers)
        self._sessions[number] = opened
        return number

    def _find(self, number: int) -> _Open:
        if number not in self._sessions:
            raise InvalidInput(f"there is no session {number}", hint="it is released, or was not opened")
        return self._sessions[number]

    def _declared(self, number: int, which: str, values: Any) -> int:
        opened = self._find(number)
        arguments = getattr(opened.session, f"get_{which}")()
        if which not in opened.declared:
            kept: list[Any] = []
            kept.append(self._array([self._declaration(a, kept) for a in arguments], kept))
            opened.declared[which] = kept
        self._given(values, "values")[0] = opened.declared[which][-1]
        return len(arguments)

    # ── tensors ──

    def _declaration(self, argument: NodeArg, kept: list[Any]) -> dict[str, Any]:
        sizes = [n if isinstance(n, int) else -1 for n in argument.shape]
        return self._tensor(argument.name, _CODES.get(argument.type, 0), sizes, kept)

    def _result(self, name: str, value: OrtValue, kept: list[Any]) -> dict[str, Any]:
        if not value.has_value():
            return self._tensor(name, 0, [], kept)
        if not value.is_tensor():
            raise InvalidInput(f'output "{name}" is no tensor', hint="name the outputs that are tensors")
        array = to_storage(np.ascontiguousarray(value.numpy()))
        made = self._tensor(name, value.element_type(), array.shape, kept)
        if array.dtype == object:
            texts = [self._text(text) for text in array.ravel().tolist()]
            data, size = self._ffi.new("char *[]", texts), len(texts) * self._ffi.sizeof("char *")
            kept += texts
        else:
            array, size = array if array.size else np.zeros(1, array.dtype), array.nbytes
            data = self._ffi.from_buffer(array)
        kept.append(data)
        return {**made, "data": self._ffi.cast("void *", data), "size": size}

    def _tensor(self, name: str, code: int, shape: Sequence[int], kept: list[Any]) -> dict[str, Any]:
        text, sizes = self._text(name), self._ffi.new("int64_t[]", list(shape) or [0])
        kept += [text, sizes]
        return {"name": text, "type": code, "rank": len(shape), "shape": sizes}

    def _array(self, tensors: Sequence[Any], kept: list[Any]) -> Any:
        array = self._ffi.new("pyruntime_tensor[]", list(tensors) or 1)
        kept.append(array)
        return array

    def _feed(self, tensor: Any, at: int) -> tuple[str, OrtValue]:
        """A copy of an input."""
        name = self._read(tensor.name, f"name of input {at}")
        dtype = dt.BY_CODE.get(tensor.type)
        if dtype is None:
            raise InvalidInput(
                f'input "{name}": {tensor.type} is no type of elements', hint="ONNX: TensorProto.DataType"
            )
        shape = [tensor.shape[n] for n in range(tensor.rank)]
        if any(n < 0 for n in shape):
            raise InvalidInput(f'input "{name}" has shape {shape}', hint="sizes are numbers from 0 on")
        count = int(np.prod(shape, dtype=object))
        each = self._ffi.sizeof("char *") if dtype is dt.STRING else NUMPY[dtype.name].itemsize
        if tensor.size != count * each:
            text = f'input "{name}" has {tensor.size} bytes; shape {shape} of {dtype} needs {count * each}'
            raise InvalidInput(text)
        data = self._given(tensor.data, f'data of input "{name}"') if count else self._ffi.NULL
        if dtype is dt.STRING:
            texts = self._ffi.cast("char **", data)
            strings = [self._read(texts[n], f'string {n} of input "{name}"') for n in range(count)]
            return name, OrtValue.ortvalue_from_numpy(np.array(strings, object).reshape(shape))
        stored = np.frombuffer(bytes(self._ffi.buffer(data, tensor.size)) if count else b"", NUMPY[dtype.name])
        return name, OrtValue(from_storage(stored.reshape(shape), dtype), dtype)

    # ── texts and pointers ──

    def _read(self, text: Any, what: str) -> str:
        try:
            return str(self._ffi.string(self._given(text, what)).decode())
        except UnicodeDecodeError:
            raise InvalidInput(f"{what} is no UTF-8") from None

    def _given(self, pointer: Any, what: str) -> Any:
        if not pointer:
            raise InvalidInput(f"{what} is NULL")
        return pointer

    def _text(self, text: str) -> Any:
        return self._ffi.new("char[]", text.encode())


@contextmanager
def _running(opened: _Open) -> Iterator[RunOptions]:
    options = RunOptions()
    opened.runs[id(options)] = options
    try:
        yield options
    finally:
        del opened.runs[id(options)]


def _options(text: str) -> tuple[SessionOptions, Any]:
    """Options and providers of a session, from JSON. Errors: InvalidInput"""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"options are no JSON: {error}") from None
    if not isinstance(given, dict):
        raise InvalidInput("options must be an object of JSON")
    providers = given.pop("providers", None)
    made, known = SessionOptions(), {f.name for f in fields(SessionOptions)}
    for name, value in given.items():
        if name not in known:
            raise InvalidInput(f'there is no option "{name}"', hint=f"options are {', '.join(sorted(known))}")
        setattr(made, name, value)
    named = [tuple(p) if isinstance(p, list) else p for p in providers] if isinstance(providers, list) else providers
    return made, named


def define(ffi: Any) -> None:
    """Makes the functions of the header those of a `Library`. On failure they return 0, or -1 for a count."""
    library = Library(ffi)
    counts = ("inputs", "outputs", "run")
    for name in ("open", "open_bytes", *counts, "free", "stop", "release", "error_kind", "error", "version"):
        failed = {"error": -1} if name in counts else {}
        ffi.def_extern(f"pyruntime_{name}", onerror=library.fail, **failed)(getattr(library, name))

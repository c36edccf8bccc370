"""The one exception tree. Every error names where it happened and, where it can, what to do about it.

Besides the root each class has those of onnxruntime as bases that onnxruntime raises in such cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyruntime import ort_errors as ort


class PyRuntimeError(Exception):
    """Root of the tree.

    `node` is "Op "name"" of the ONNX node at fault, `hint` one sentence on what to do; both may be empty.
    `payload()` is what crosses the worker boundary and is enough to rebuild the error there.
    """

    def __init__(self, message: str, *, node: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint

    def at(self, node: str) -> PyRuntimeError:
        """Name the node, unless an inner frame already did."""
        self.node = self.node or node
        return self

    def __str__(self) -> str:
        text = f"{self.node}: {self.message}" if self.node else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def payload(self) -> dict[str, str]:
        return {"type": type(self).__name__, "message": self.message, "node": self.node, "hint": self.hint}


class InvalidModel(PyRuntimeError, ort.InvalidProtobuf, ort.InvalidGraph, ort.Fail):
    """The bytes are not a valid ONNX model; the message says at which offset."""


def unreadable(message: str, hint: str = "") -> InvalidModel:
    """Of bytes that are no model at all. Programs look for onnxruntime's words to download a file again."""
    words = "INVALID_PROTOBUF: Protobuf parsing failed"
    return InvalidModel(message, hint=f"{hint}; {words}" if hint else words)


class UnsupportedOp(PyRuntimeError, ort.NotImplemented, ort.InvalidGraph, ort.Fail):
    """An operator, a meaning of it, an attribute or a type that is not implemented."""


class NotSupported(PyRuntimeError, ort.NotImplemented, RuntimeError):
    """A part of onnxruntime's interface that has no meaning here; the hint says what there is in its place."""


class ShapeError(PyRuntimeError, ort.InvalidGraph, ort.InvalidArgument, ort.RuntimeException, ort.Fail):
    """Shapes or attributes of a node contradict each other."""


class InvalidInput(PyRuntimeError, ort.InvalidArgument, ValueError, RuntimeError, TypeError):
    """A feed has a wrong name, element type, rank, dimension or value. The session stays usable. (For some of these
    onnxruntime raises the built-in exceptions.)"""


class OutOfMemory(PyRuntimeError, ort.RuntimeException):
    """A memory limit would be exceeded; nothing was allocated. `gpu`: the device had no memory left, so that freeing
    what is kept there may help."""

    gpu = False


class MemoryFault(PyRuntimeError, ort.RuntimeException):
    """An allocator was misused: out of bounds, double free. Always a bug of ours."""


class InternalError(PyRuntimeError, ort.EngineError, ort.RuntimeException):
    """The engine failed where it should have worked or refused. Always a bug of ours."""


class ModelNotFound(InvalidModel, ort.NoSuchFile, FileNotFoundError):
    """There is no file at the model's path."""


def not_found(model: str | os.PathLike[str]) -> ModelNotFound:
    return ModelNotFound(f'there is no file "{os.fspath(model)}"', hint="NO_SUCHFILE: File doesn't exist")


class DeviceLost(PyRuntimeError, ort.EPFail):
    """The GPU device is gone and could not be rebuilt."""


class SessionFailed(PyRuntimeError, ort.Fail):
    """The session cannot run any more; the message holds the cause."""


class ExecutionError(PyRuntimeError, ort.InvalidArgument, ort.RuntimeException, ort.Fail):
    """A kernel refused its data while running (an index out of range, say)."""


class Terminated(PyRuntimeError, ort.Fail):
    """A run was stopped on demand. The session stays usable."""


class LimitExceeded(PyRuntimeError, ort.Fail):
    """Compiling would take more time, or give more code, than the session's options allow."""


class NeedsValue(PyRuntimeError):
    """Not an error for users: compilation needs the value of tensor `name`, or the values of the `symbols` that are
    dims of inputs (see docs/architecture.md, specialisation)."""

    def __init__(self, name: str, *, node: str = "", symbols: frozenset[Any] = frozenset()) -> None:
        what = f'the value of "{name}"' if name else f"the dims {sorted(map(str, symbols))}"
        super().__init__(f"{what} must be known to compile this node", node=node)
        self.name = name
        self.symbols = symbols


@contextmanager
def our_fault(doing: str, node: str = "") -> Iterator[None]:
    """Turn exceptions that are not of this tree into InternalErrors: what `doing` names failed, for the node if there
    is one. Running out of memory is an OutOfMemory."""
    try:
        yield
    except (PyRuntimeError, Warning):  # a warning is an exception where a program wants it so
        raise
    except MemoryError as e:
        raise OutOfMemory(f"{doing} takes more memory than there is", node=node) from e
    except Exception as e:
        text, hint = f"{doing} failed: {type(e).__name__}: {e}", "please report this bug, unless the operator is yours"
        raise InternalError(text, node=node, hint=hint) from e

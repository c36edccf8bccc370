"""The exceptions of the engine. An error names the node at fault and, if possible, what to do about it.
Twin of web/common/errors.js.

Besides the root, each class has as bases the exceptions that onnxruntime raises in the same cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ContextDecorator
from typing import Any

from pyruntime import ort_errors as ort

# Where the documentation is published: an address that ends with "/", or "" as long as there is none. The build for
# pages reads it here, too (scripts/error_pages.py).
DOCUMENTATION = ""
SEE = "Causes and remedies"
# Names that the engine gives to feeds, outputs and dims: callers do not know them, and messages leave them out.
HIDDEN = (
    *(f"training:{name}" for name in ("numbers", "apply", "result", "applied", "loss")),
    *(f"adapters:{name}" for name in ("A", "B", "rank")),
)


def help_of(kind: str) -> str:
    """What opens the documentation's page on a kind of error: its address, or else a command."""
    return f"{DOCUMENTATION}errors/{kind}/" if DOCUMENTATION else f"pyruntime help {kind}"


def shown_names(names: Iterable[str]) -> list[str]:
    """Those of the names that callers know."""
    return [name for name in names if name not in HIDDEN]


class PyRuntimeError(Exception):
    """The root of all exceptions.

    node: "Op "name"" of the ONNX node at fault; hint: one sentence on what to do; both may be empty. help: what opens
    the documentation's page on this kind of error, which tracebacks show.
    `payload()` is the data from which the other side of the worker boundary rebuilds the error.
    """

    help = ""

    def __init__(self, message: str, *, node: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint
        if self.help:
            self.add_note(f"{SEE}: {self.help}")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__ == __name__ and "help" not in vars(cls):
            cls.help = help_of(cls.__name__)

    def at(self, node: str) -> PyRuntimeError:
        """Set the node, unless an inner frame has set it."""
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
    """The error for bytes that are no model. It contains onnxruntime's words, by which programs decide to download
    again."""
    words = "INVALID_PROTOBUF: Protobuf parsing failed"
    return InvalidModel(message, hint=f"{hint}; {words}" if hint else words)


class UnsupportedOp(PyRuntimeError, ort.NotImplemented, ort.InvalidGraph, ort.Fail):
    """An operator, a version of one, an attribute or a type that is not implemented."""


class NotDifferentiable(UnsupportedOp):
    """A gradient passes through a node that has none. The hint names the tensors that need it."""


class UnsupportedSizes(UnsupportedOp):
    """The Program for all sizes does not run these; a Program for these alone may. Sessions catch it."""

    help = UnsupportedOp.help


class NotSupported(PyRuntimeError, ort.NotImplemented, RuntimeError):
    """A part of onnxruntime's interface that this engine does not have. The hint names the alternative."""


class ShapeError(PyRuntimeError, ort.InvalidGraph, ort.InvalidArgument, ort.RuntimeException, ort.Fail):
    """Shapes or attributes of a node contradict each other."""


class InvalidInput(PyRuntimeError, ort.InvalidArgument, ValueError, RuntimeError, TypeError):
    """A feed has a wrong name, element type, rank, dimension or value. The session stays usable. (onnxruntime raises
    built-in exceptions in some of these cases.)"""


class OutOfMemory(PyRuntimeError, ort.RuntimeException):
    """A memory limit would be exceeded; nothing was allocated. gpu: the device had no memory left, so that freeing
    cached memory there may help. of_all: memory of other sessions would help. of_system: the system refused it, without
    a limit of this package."""

    gpu = False
    of_all = False
    of_system = False


class MemoryFault(PyRuntimeError, ort.RuntimeException):
    """Misuse of an allocator, such as a double free. Always a bug of the engine."""


class InternalError(PyRuntimeError, ort.EngineError, ort.RuntimeException):
    """An unexpected failure. Always a bug of the engine."""


class ModelNotFound(InvalidModel, ort.NoSuchFile, FileNotFoundError):
    """No file exists at the model's path."""


def not_found(model: str | os.PathLike[str]) -> ModelNotFound:
    """The error for a path without a file. Its hint has onnxruntime's words."""
    hint, path = "NO_SUCHFILE: File doesn't exist", os.fspath(model)
    if str(path).partition("://")[0] in ("http", "https", "file"):
        hint = f"addresses are not fetched: download the model; {hint}"
    elif str(path).startswith("~"):
        hint = f"os.path.expanduser replaces ~; {hint}"
    elif not os.path.isabs(path):
        hint = f"the current folder is {os.getcwd()}; {hint}"
    return ModelNotFound(f'there is no file "{path}"', hint=hint)


def file_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file. Errors: ModelNotFound, InvalidInput if it cannot be read"""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise not_found(path) from None
    except (OSError, ValueError) as e:
        raise InvalidInput(f'"{os.fspath(path)}" cannot be read: {e}') from None


class DeviceLost(PyRuntimeError, ort.EPFail):
    """The GPU device is gone and could not be rebuilt. is_late: it did not answer in time; at_fault: by node, why it is
    the cause"""

    is_late = False
    at_fault: Mapping[str, str] = {}


class SessionFailed(PyRuntimeError, ort.Fail):
    """The session cannot run any more. The message contains the cause."""


class ExecutionError(PyRuntimeError, ort.InvalidArgument, ort.RuntimeException, ort.Fail):
    """A kernel found invalid data during a run, such as an index out of range. at_fault: by node, why the driver does
    not compile its shader, or why `provider`, one that a user has added, failed; has_kept_states: whether the kernels
    of the run that change weights saw the fault, too, and changed none"""

    at_fault: Mapping[str, str] = {}
    provider = ""
    has_kept_states = False


def out_of_range(node: str, index: int, extent: int) -> ExecutionError:
    """The error for an index in data that is out of range, the same in all executors."""
    text = f"index {index} is out of range for {extent} element{'' if extent == 1 else 's'}"
    return ExecutionError(text, node=node)


class Terminated(PyRuntimeError, ort.Fail):
    """The caller stopped a run. The session stays usable."""


class LimitExceeded(PyRuntimeError, ort.Fail):
    """Compilation would take more time, or produce more code, than the session's options allow."""


class NeedsValue(PyRuntimeError):
    """Internal: compilation needs the value of the tensor `name`, or the values of `symbols`, which are dims of inputs.
    The session catches it and specialises the model (docs/architecture.md)."""

    help = ""  # it has no page

    def __init__(self, name: str, *, node: str = "", symbols: frozenset[Any] = frozenset()) -> None:
        what = f'the value of "{name}"' if name else f"the dims {sorted(map(str, symbols))}"
        super().__init__(f"{what} must be known to compile this node", node=node)
        self.name = name
        self.symbols = symbols


class our_fault(ContextDecorator):  # no generator, because there is one for each node and kernel
    """Inside the block, other exceptions become InternalErrors, and MemoryError becomes OutOfMemory. doing: the action
    that failed, for the message."""

    def __init__(self, doing: str, node: str = "") -> None:
        self.doing, self.node = doing, node

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, e: BaseException | None, trace: object) -> None:
        if isinstance(e, MemoryError):
            raise OutOfMemory(f"{self.doing} takes more memory than there is", node=self.node) from e
        # a program may turn warnings into exceptions
        if isinstance(e, Exception) and not isinstance(e, (PyRuntimeError, Warning)):
            hint = "please report this bug, unless the operator is yours"
            raise InternalError(f"{self.doing} failed: {type(e).__name__}: {e}", node=self.node, hint=hint) from e

"""onnxruntime's exception classes. The engine's exceptions derive from them, so that programs can catch either.

They are those of `onnxruntime.capi.onnxruntime_pybind11_state`, where each derives from Exception alone, too.
"""

from __future__ import annotations


class Fail(Exception):
    """A model or a run failed."""


class InvalidArgument(Exception):
    """A feed, a name or an option does not fit."""


class NoSuchFile(Exception):
    """No file exists at the model's path."""


class NoModel(Exception):
    """A session has no model. Never raised here: sessions are made with one."""


class EngineError(Exception):
    """The engine failed."""


class RuntimeException(Exception):
    """A run failed."""


class InvalidProtobuf(Exception):
    """Bytes are no ONNX model."""


class ModelLoaded(Exception):
    """A session has a model already. Never raised here: sessions are made with one."""


class NotImplemented(Exception):
    """An operator, or a part of the interface, is not implemented."""


class InvalidGraph(Exception):
    """A graph is inconsistent, or violates the operators' definitions."""


class EPFail(Exception):
    """An execution provider failed, such as the GPU."""


class ModelLoadCanceled(Exception):
    """Opening a session was cancelled. Never raised here."""


class ModelRequiresCompilation(Exception):
    """A model needs a compiler that is missing. Never raised here."""


class NotFound(Exception):
    """A named object is missing. Never raised here."""


class DeviceReset(Exception):
    """A device was reset. Never raised here: DeviceLost is an EPFail."""


__all__ = [
    "DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound",
    "NotImplemented", "RuntimeException",
]  # fmt: skip

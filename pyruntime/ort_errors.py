"""onnxruntime's exception classes by their names: bases of ours, so that programs which catch them catch ours.

`onnxruntime.capi.onnxruntime_pybind11_state` has them; there, too, each derives from Exception alone.
"""

from __future__ import annotations


class Fail(Exception):
    """A model or a run failed."""


class InvalidArgument(Exception):
    """A feed, a name or an option does not fit."""


class NoSuchFile(Exception):
    """There is no file at the model's path."""


class NoModel(Exception):
    """A session has no model. Never raised here: sessions are made with one."""


class EngineError(Exception):
    """The engine failed."""


class RuntimeException(Exception):
    """Something failed while running."""


class InvalidProtobuf(Exception):
    """Bytes are no ONNX model."""


class ModelLoaded(Exception):
    """A session has a model already. Never raised here: sessions are made with one."""


class NotImplemented(Exception):
    """An operator, or a part of the interface, that is not there."""


class InvalidGraph(Exception):
    """A graph contradicts itself or the operators' definitions."""


class EPFail(Exception):
    """A provider of execution failed, the GPU for instance."""


class ModelLoadCanceled(Exception):
    """Opening a session was cancelled. Never raised here."""


class ModelRequiresCompilation(Exception):
    """A model needs a compiler that is not there. Never raised here."""


class NotFound(Exception):
    """Something named is not there. Never raised here."""


class DeviceReset(Exception):
    """A device was reset. Never raised here: DeviceLost is an EPFail."""


__all__ = [
    "DeviceReset", "EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf",
    "ModelLoadCanceled", "ModelLoaded", "ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound",
    "NotImplemented", "RuntimeException",
]  # fmt: skip

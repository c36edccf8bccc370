"""Names of onnxruntime that are not supported: importing them works, using them raises NotSupported with a reason."""

from __future__ import annotations

from typing import Any, NoReturn

from pyruntime.errors import NotSupported

REASONS = {
    "ModelCompiler": ("models are not compiled into ONNX models", "session.export() writes a Program"),
    "OrtEpContextData": ("models with EP contexts (code of a provider) are not supported", ""),
    "OrtEpContextDataBuffer": ("models with EP contexts (code of a provider) are not supported", ""),
    "OrtExternalInitializerInfo": ("models are not written", ""),
    "OrtSyncStream": ("streams are not supported", "run returns when the outputs are complete"),
    "register_execution_provider_library": (
        "a library of a provider is machine code for another runtime",
        "pyruntime.register_provider takes one in Python",
    ),
    "unregister_execution_provider_library": ("libraries of providers are not loaded", ""),
}  # fmt: skip


class _Refused(type):
    """A class whose constructor and methods raise NotSupported."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **options: refuse(cls.__name__)

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        refuse(cls.__name__)


def refuse(name: str) -> NoReturn:
    message, hint = REASONS[name]
    raise NotSupported(f"{name}: {message}", hint=hint)


def _function(name: str) -> Any:
    def refused(*args: Any, **options: Any) -> NoReturn:
        refuse(name)

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Refused: {REASONS[name][0]}."
    return refused


def named(name: str) -> Any:
    """The class or function of this name."""
    if name[0].islower():
        return _function(name)
    return _Refused(name, (), {"__doc__": f"Refused: {REASONS[name][0]}.", "__module__": __name__})


NAMES = {name: named(name) for name in REASONS}

"""Errors of the engine as answers: an HTTP status and a gRPC status."""

from __future__ import annotations

from typing import Any

from grpc import StatusCode
from grpc_interceptor.exceptions import GrpcException

from pyruntime.errors import (
    DeviceLost,
    InternalError,
    LimitExceeded,
    MemoryFault,
    OutOfMemory,
    PyRuntimeError,
    SessionFailed,
    Terminated,
)

GRPC = {
    400: StatusCode.INVALID_ARGUMENT,
    408: StatusCode.DEADLINE_EXCEEDED,
    413: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    501: StatusCode.UNIMPLEMENTED,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}
# The first that fits
STATUS: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    ((Terminated,), 504),
    ((OutOfMemory, LimitExceeded), 413),
    ((SessionFailed, DeviceLost), 503),
    ((InternalError, MemoryFault), 500),
    ((PyRuntimeError,), 400),
)


class Refused(GrpcException):  # type: ignore[misc]
    """The answer to a request that is not run. status: of HTTP, a key of GRPC"""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status_code=GRPC[status], details=text)
        self.status = status

    def __str__(self) -> str:
        return str(self.details)


def answer(error: BaseException) -> Refused:
    """The answer to a request that raised this error."""
    status = next((status for kinds, status in STATUS if isinstance(error, kinds)), 500)
    return Refused(status, str(error) if isinstance(error, PyRuntimeError) else f"internal error: {error!r}")


def as_json(error: BaseException) -> dict[str, Any]:
    """The body of an error, as the protocol wants it."""
    return {"error": str(error)}

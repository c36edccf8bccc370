"""What bounds clients of REST: bytes and seconds of a request, connections, and errors in the protocol's form."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import h11
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from kserve.errors import InvalidInput as InvalidRequest
from kserve.model_server import app
from kserve.protocol.dataplane import DataPlane
from kserve.protocol.rest.server import RESTServer
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from pyruntime import __version__
from pyruntime.serving.model import REQUESTS, Limits
from pyruntime.serving.refused import Refused, as_json

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
BODY_SECONDS = HEAD_SECONDS = 10.0  # for the bytes of a request to come
BODIES = 8  # times the limit of a body: bytes of all bodies that are being received


class Plane(DataPlane):  # type: ignore[misc]
    """Not ready while the server ends. What it cannot decode is the client's fault."""

    is_ending = False

    def metadata(self) -> dict[str, Any]:
        return {"name": "pyruntime", "version": __version__, "extensions": ["binary_tensor_data"]}

    async def ready(self) -> bool:
        return not self.is_ending and all([await m.healthy() for m in self._model_registry.get_models().values()])

    def decode(self, *args: Any, **options: Any) -> Any:
        try:
            return super().decode(*args, **options)
        except Exception as error:  # KeyError, TypeError, struct.error and others, by what the client sent
            raise InvalidRequest(f"the request cannot be read: {error!r}") from None


class Repository:
    """Stands for KServe's, by which each client could load and unload models."""

    async def load(self, model_name: str) -> None:
        raise Refused(501, "models are loaded when the server starts")

    unload = load


class Connection(H11Protocol):  # type: ignore[misc]
    """Closes a connection whose request line and headers do not come within HEAD_SECONDS."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._late is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, lambda: self.transport.close())

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Guard:
    """An ASGI application around KServe's. It reads a whole body before the other sees the request, refuses one that is
    too large or too slow, and cancels the other once the client has gone, which stops the run."""

    def __init__(self, plane: Plane, limits: Limits) -> None:
        self._plane, self._limits = plane, limits
        self._bytes = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        sent: set[str] = set()

        async def sending(message: Message) -> None:
            sent.add("" if message.get("more_body") else message["type"])
            if message["type"] == "http.response.start" and self._plane.is_ending:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        try:
            announced = int(dict(scope["headers"]).get(b"content-length", 0))
            body = await self._body(receive, announced)
        except Refused as error:
            REQUESTS.labels("", str(error.status)).inc()
            response = JSONResponse(as_json(error), error.status, {"connection": "close"})
            await response(scope, receive, send)
            return
        except ConnectionError:
            return
        messages: list[Message] = [{"type": "http.request", "body": body}]
        work = asyncio.ensure_future(app(scope, lambda: _next(messages), sending))
        gone = asyncio.ensure_future(receive())  # ends when the client has gone, or has its answer
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if "http.response.body" not in sent:
            work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    async def _body(self, receive: Receive, announced: int) -> bytes:
        """announced: its number of bytes, or 0. Errors: Refused; ConnectionError if the client goes"""
        parts: list[bytes] = []
        size = 0
        too_large = Refused(413, f"the request has more than {self._limits.body} bytes")
        if announced > self._limits.body:
            raise too_large
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionError
                    part = message.get("body", b"")
                    parts.append(part)
                    size += len(part)
                    self._bytes += len(part)
                    if size > self._limits.body:
                        raise too_large
                    if self._bytes > BODIES * self._limits.body:
                        raise Refused(503, "too many bytes are being received; try again later")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Refused(408, f"the request did not come within {BODY_SECONDS:g} s") from None
        finally:
            self._bytes -= size
        return b"".join(parts)


async def _next(messages: list[Message]) -> Message:
    if not messages:
        await asyncio.Event().wait()  # until it is cancelled
    return messages.pop()


def application(plane: Plane, limits: Limits) -> Guard:
    """KServe's routes, with errors as the protocol wants them."""
    RESTServer("", plane, Repository(), 0).create_application()

    async def refused(_: Any, error: Refused) -> JSONResponse:
        return JSONResponse(as_json(error), error.status)

    async def unreadable(_: Any, error: Exception) -> JSONResponse:
        return JSONResponse(as_json(error), 400)

    async def invalid(_: Any, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]  # their text has the server's paths
        return JSONResponse({"error": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, 400)

    async def by_status(_: Any, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code)

    warnings.filterwarnings("ignore", "ORJSONResponse")  # KServe's default, which FastAPI would replace
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(InvalidRequest, unreadable)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, by_status)
    return Guard(plane, limits)

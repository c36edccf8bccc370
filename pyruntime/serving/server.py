"""Starts and ends the servers of REST and gRPC."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import uvicorn
from kserve import ModelRepository
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import add_GRPCInferenceServiceServicer_to_server
from kserve.protocol.grpc.interceptors import ExceptionToStatusInterceptor
from kserve.protocol.grpc.servicer import InferenceServicer
from prometheus_client import REGISTRY

from pyruntime.serving.model import Limits, ServedModel, SessionMetrics
from pyruntime.serving.rest import Connection, Plane, Repository, application

GRACE = 5.0  # seconds beyond the time-out of a request, for its answer
CONNECTIONS = 8  # times the limit of requests: connections of REST


class _Server(uvicorn.Server):  # type: ignore[misc]
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """`serve` handles signals."""
        yield


def _rest_server(plane: Plane, limits: Limits) -> _Server:
    config = uvicorn.Config(
        application(plane, limits),
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        limit_concurrency=CONNECTIONS * limits.requests,
        timeout_keep_alive=65,
        timeout_graceful_shutdown=int(limits.timeout + GRACE),
    )
    return _Server(config)


def _grpc_server(plane: Plane, limits: Limits) -> Any:
    server = grpc.aio.server(
        interceptors=(ExceptionToStatusInterceptor(),),
        maximum_concurrent_rpcs=CONNECTIONS * limits.requests,
        options=[
            ("grpc.max_receive_message_length", limits.body),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),  # two servers on one port would share requests unnoticed
        ],
    )
    add_GRPCInferenceServiceServicer_to_server(InferenceServicer(plane, Repository()), server)
    return server


async def serve(models: list[ServedModel], limits: Limits, host: str, port: int, grpc_port: int) -> None:
    """Serve until SIGTERM or SIGINT, then end what has begun. Errors: OSError for a port that is taken"""
    logging.getLogger("kserve").setLevel(logging.CRITICAL)  # a line, and a traceback, for each refused request
    repository = ModelRepository()
    for model in models:
        repository.update(model)
    REGISTRY.register(SessionMetrics(models))
    plane = Plane(model_registry=repository)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=2048)
    rest, by_grpc = _rest_server(plane, limits), _grpc_server(plane, limits)
    name = f"[{host}]" if ":" in host else host
    try:
        grpc_port = by_grpc.add_insecure_port(f"{name}:{grpc_port}")
    except RuntimeError as error:
        raise OSError(f"port {grpc_port} for gRPC: {error}") from None
    await by_grpc.start()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    serving = asyncio.create_task(rest.serve(sockets=[listening]))
    while not rest.started and not serving.done():
        await asyncio.sleep(0.01)
    names = ", ".join(model.name for model in models)
    print(f"{names} at http://{name}:{listening.getsockname()[1]}/v2 and, by gRPC, {name}:{grpc_port}", flush=True)
    await asyncio.wait({serving, asyncio.create_task(stopped.wait())}, return_when=asyncio.FIRST_COMPLETED)
    plane.is_ending = True  # answers close their connections, and readiness fails, so that others get new requests
    await asyncio.sleep(limits.drain)
    rest.should_exit = True
    await asyncio.gather(serving, by_grpc.stop(limits.timeout + GRACE))
    for model in models:
        model.close()

"""A session as a model of KServe: requests in, answers out, with a time-out that stops the run."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model
from kserve.protocol.infer_type import to_http_parameters
from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily, Metric

from pyruntime.api.batcher import Batcher
from pyruntime.api.session import InferenceSession
from pyruntime.errors import InvalidInput
from pyruntime.serving.refused import Refused, answer
from pyruntime.serving.tensors import array_of, metadata
from pyruntime.session.run_options import RunOptions

REQUESTS = Counter("pyruntime_requests", "Requests by HTTP status, also those of gRPC", ["model_name", "status"])
logger = logging.getLogger(__name__)
MICROSECONDS = 1e-6  # Triton's parameter `timeout` of a request counts in them


class Limits(NamedTuple):
    """requests: that run or wait, of each model; body: bytes of a request; timeout: seconds from a whole request to
    its result; drain: seconds from SIGTERM until the ports close; batch: rows of a run, 1 for none together; wait:
    milliseconds that a request waits for others; workers: runs at the same time"""

    requests: int = 64
    body: int = 64 << 20
    timeout: float = 30.0
    drain: float = 5.0
    batch: int = 1
    wait: float = 5.0
    workers: int = 2


class ServedModel(Model):  # type: ignore[misc]
    """A session behind the protocol. Errors: InvalidInput for a model whose types the protocol does not have, or that
    cannot run batches if `limits` asks for them."""

    def __init__(self, name: str, session: InferenceSession, limits: Limits) -> None:
        super().__init__(name)
        self.session, self.limits = session, limits
        self._inputs, self._outputs = metadata(session.get_inputs()), metadata(session.get_outputs())
        self._types = {i["name"]: i["datatype"] for i in self._inputs}
        self._batcher = Batcher(session, limits.batch, limits.wait) if limits.batch > 1 else None
        self._pool = ThreadPoolExecutor(limits.workers, f"pyruntime {name}")
        self._count = 0
        self.ready = True

    def get_input_types(self) -> list[dict[str, Any]]:
        return self._inputs

    def get_output_types(self) -> list[dict[str, Any]]:
        return self._outputs

    async def healthy(self) -> bool:
        return self.session.state in ("ready", "running", "recovering")

    async def predict(self, payload: Any, headers: Mapping[str, str] | None = None) -> InferResponse:
        """The answer to a request. Errors: Refused"""
        status = 499  # as nginx notes a client that has gone
        try:
            response = await self._answered(payload)
            status = 200
            return response
        except Refused as error:
            status = error.status
            raise
        except Exception as error:
            refused = answer(error)
            status = refused.status
            if status == 500:
                logger.exception("a request to %s failed", self.name)
            raise refused from error
        finally:
            REQUESTS.labels(self.name, str(status)).inc()

    async def _answered(self, request: Any) -> InferResponse:
        if not isinstance(request, InferRequest):
            raise Refused(501, "this server has the Open Inference Protocol (v2) only")
        if self._count >= self.limits.requests:
            raise Refused(503, f"{self._count} requests wait for {self.name}; try again later")
        self._count += 1
        try:
            names = [o.name for o in request.request_outputs or ()] or [o["name"] for o in self._outputs]
            results = await self._results(names, self._feeds(request), self._seconds(request))
        finally:
            self._count -= 1
        return self._response(request, dict(zip(names, results, strict=True)))

    def _feeds(self, request: InferRequest) -> dict[str, np.ndarray]:
        feeds: dict[str, np.ndarray] = {}
        for given in request.inputs:
            if given.name not in self._types or given.name in feeds:
                raise InvalidInput(f'input "{given.name}" is not known, or given twice', hint=f"{[*self._types]}")
            feeds[given.name] = array_of(given, self._types[given.name])
        return feeds

    def _seconds(self, request: InferRequest) -> float:
        """The time-out of a request: the server's, or a shorter one that the request asks for."""
        microseconds = to_http_parameters(request.parameters or {}).get("timeout", 0)
        if isinstance(microseconds, bool) or not isinstance(microseconds, int) or microseconds < 0:
            raise InvalidInput(f"the parameter timeout cannot be {microseconds!r}", hint="microseconds")
        return min(microseconds * MICROSECONDS, self.limits.timeout) if microseconds else self.limits.timeout

    async def _results(self, names: list[str], feeds: dict[str, np.ndarray], seconds: float) -> list[Any]:
        """Errors: Refused if the time is over. The run stops then, and also if the client has gone."""
        options = RunOptions()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(self._submit(names, feeds, options))
        except TimeoutError:
            raise Refused(504, f"{self.name} was stopped after {seconds:.3g} s") from None
        finally:
            options.terminate = True

    def _submit(self, names: list[str], feeds: dict[str, np.ndarray], options: RunOptions) -> Future[list[Any]]:
        if self._batcher is not None:
            return self._batcher.submit(names, feeds, options)
        return self._pool.submit(self.session.run, names, feeds, options)

    def _response(self, request: InferRequest, results: Mapping[str, np.ndarray]) -> InferResponse:
        datatypes = {o["name"]: o["datatype"] for o in self._outputs}
        binary = {o.name: o.binary_data for o in request.request_outputs or ()}
        outputs = []
        for name, x in results.items():
            in_json = not (request.from_grpc or binary.get(name, request.use_binary_outputs))
            if in_json and x.dtype.kind == "f" and not np.isfinite(x).all():
                raise InvalidInput(f'output "{name}" has infinite values or NaN, and JSON has none', hint="binary_data")
            outputs.append(InferOutput(name, list(x.shape), datatypes[name]))
            outputs[-1].set_data_from_numpy(x, binary_data=not in_json)
        return InferResponse(
            response_id=request.id or uuid.uuid4().hex,
            model_name=self.name,
            infer_outputs=outputs,
            from_grpc=request.from_grpc,
            use_binary_outputs=request.use_binary_outputs,
            requested_outputs=request.request_outputs,
        )

    def close(self) -> None:
        """Release the session, after its last run."""
        self.ready = False
        if self._batcher is not None:
            self._batcher.close()
        self._pool.shutdown()
        self.session.release()


class SessionMetrics:
    """The metrics of sessions (docs/watching.md) for Prometheus, as gauges with the model's name."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self._models = list(models)

    def collect(self) -> Iterable[Metric]:
        found: dict[str, GaugeMetricFamily] = {}
        for model in self._models:
            for key, value in model.session.metrics().items():
                parts = value if isinstance(value, Mapping) else {"": value}
                for part, number in parts.items():
                    name = f"pyruntime_session_{key}{'_' if part else ''}{part}"
                    family = found.setdefault(name, GaugeMetricFamily(name, "see watching.md", labels=["model_name"]))
                    family.add_metric([model.name], number)
        return found.values()

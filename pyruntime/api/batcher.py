"""Runs requests of many callers together, along the batch dim of a model. Twin of web/extras/batcher.js."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from math import inf
from typing import Any

import numpy as np

from pyruntime.api.ort_value import OrtValue
from pyruntime.api.session import InferenceSession
from pyruntime.arguments import checks_arguments
from pyruntime.errors import DeviceLost, InvalidInput, SessionFailed, Terminated
from pyruntime.native.execution.forks import in_children
from pyruntime.runtime.batching import BatchLayout, Declared, Gatherer
from pyruntime.session.run_options import RunOptions, check_run_options

IDLE = 1.0  # seconds: without requests for so long, the thread ends
REMEDY = "the argument dim names the batch dim; output_names leaves outputs out; a model with a fixed batch cannot"
POLL = 0.02  # seconds: how often a call with run options reads whether it should stop

Feeds = dict[str, np.ndarray]


class _Request:
    """names: of outputs; settings: its run options besides `terminate`, as they are when it is submitted"""

    def __init__(self, names: list[str], feeds: Feeds, options: RunOptions | None) -> None:
        self.names, self.feeds, self._options = names, feeds, options
        given = RunOptions() if options is None else options
        self.settings = {name: copy(getattr(given, name)) for name in RunOptions.__slots__ if name != "terminate"}
        self.dims = {name: list(x.shape) for name, x in feeds.items()}
        self.future: Future[list[Any]] = Future()

    @property
    def is_stopped(self) -> bool:
        return self._options is not None and self._options.terminate

    def begin(self) -> bool:
        """Whether the request takes part in a run: its caller has neither dropped nor stopped it."""
        if not self.future.set_running_or_notify_cancel():
            return False
        if is_stopped := self.is_stopped:
            self.future.set_exception(_stopped())
        return not is_stopped


class _Together(RunOptions):
    """Options of a run for several requests with the same settings. It stops once the callers have stopped all of
    them."""

    def __init__(self, requests: Sequence[_Request]) -> None:
        self._requests: Sequence[_Request] = ()
        super().__init__()
        self._requests = requests
        for name, value in requests[0].settings.items():
            setattr(self, name, value)

    @property
    def terminate(self) -> bool:
        return bool(self._requests) and all(r.is_stopped for r in self._requests)

    @terminate.setter
    def terminate(self, value: bool) -> None:
        """Set by the constructor; the requests decide."""


@checks_arguments()
class Batcher:
    """Gathers requests into runs of at most `size` rows. A request waits for others for at most `wait` milliseconds.

    pad: by input, the value that fills its other free dims up to the largest among the requests; inputs that are not
        named share a run only if these dims are equal
    dim: name of the batch dim; by default that of the first input whose first dim has a name
    output_names: outputs that requests may ask for; each needs a row for each item
    Errors: InvalidInput for a model that cannot run batches.
    """

    def __init__(
        self, session: InferenceSession, size: int = 8, wait: float = 5.0, *, pad: Mapping[str, Any] | None = None,
        dim: str = "", output_names: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        if not (size >= 1 and wait >= 0):
            raise InvalidInput(f"size {size!r} and wait {wait!r} do not fit", hint="size: from 1 on; wait: from 0 on")
        if not isinstance(session, InferenceSession):
            raise InvalidInput(f"a Batcher takes an InferenceSession, not a {type(session).__name__}")
        names = [o.name for o in session.get_outputs()] if output_names is None else list(output_names)
        inputs = [Declared(i.name, i.shape if i.type.startswith("tensor(") else None) for i in session.get_inputs()]
        outputs = [Declared(o.name, o.shape) for o in session.get_outputs() if o.name in names]
        self._pad = dict(pad or {})
        self._layout = BatchLayout(inputs, outputs, dim, list(self._pad))
        if self._layout.refused:
            raise InvalidInput(f"this model cannot run batches: {self._layout.refused}", hint=REMEDY)
        self._names = names
        self._session = session
        self._numbers = itertools.count()
        self._is_closed = False
        self._limits = size, wait / 1000
        self._begin()
        in_children(self._begin)

    def _begin(self) -> None:
        """Without requests, and without a thread. In a forked child, those of the parent do not exist."""
        self._gatherer = Gatherer(*self._limits)
        self._waiting: dict[int, _Request] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs of one request, as `InferenceSession.run` returns them. Blocks; thread-safe.

        run_options: as of a run; requests with other options have other runs, except that `terminate` stops one
            request alone"""
        future = self.submit(output_names, input_feed, run_options)
        while run_options is not None:
            try:
                return future.result(POLL)
            except TimeoutError:
                if future.done():
                    raise
                if run_options.terminate and future.cancel():
                    raise _stopped() from None
        return future.result()

    def submit(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> Future[list[Any]]:
        """Like `run`, without waiting. `asyncio.wrap_future` makes the result awaitable; `cancel()` drops a request
        whose run has not started."""
        check_run_options(run_options)
        names = self._checked_names(output_names)
        request = _Request(names, self._checked_feeds(input_feed, run_options), run_options)
        rows = self._layout.rows(request.dims)
        if rows < 1:
            raise InvalidInput(
                "the inputs of a request need equal numbers of rows, at least one", hint=f"{request.dims}"
            )
        key = self._key(request)
        with self._changed:
            if self._is_closed:
                raise SessionFailed("the batcher is closed", hint="create another")
            number = next(self._numbers)
            self._waiting[number] = request
            self._gatherer.add(key, number, rows, time.monotonic(), self._layout.length(request.dims))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="pyruntime batcher", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return request.future

    def _checked_names(self, names: Sequence[str] | None) -> list[str]:
        for name in names or ():
            if name not in self._names:
                raise InvalidInput(f'the batcher has no output "{name}"', hint=f"outputs are {self._names}")
        return list(names or self._names)

    def _checked_feeds(self, given: Any, options: RunOptions | None) -> Feeds:
        """Copies, which the caller cannot change while the request waits, without what the run feeds for adapters."""
        if isinstance(given, Mapping):
            given = {name: x.numpy() if isinstance(x, OrtValue) else x for name, x in given.items()}
        known = {x.name for x in self._layout.inputs}
        feeds: Feeds = {}
        active = () if options is None else options.adapters
        for name, x in self._session._native.check_feeds(given, None, active).items():
            if name not in given:
                continue
            if name not in known or not isinstance(x, np.ndarray):
                raise InvalidInput(f'input "{name}" cannot be part of a batch', hint="run it in a session")
            feeds[name] = np.array(x)
        return feeds

    def _key(self, request: _Request) -> str:
        alone = {name: x for name, x in request.feeds.items() if name not in self._layout.batched}
        types = {name: str(x.dtype) for name, x in request.feeds.items()}
        adapters = [(x if isinstance(x, str) else id(x), weight) for x, weight in request.settings["_active"]]
        settings = {**request.settings, "_active": adapters}
        return f"{self._layout.key(types, request.dims, {name: _text(x) for name, x in alone.items()})};{settings}"

    def close(self) -> None:
        """Run what waits, and refuse later requests. The session stays open. In a callback of a request it returns
        before the rest has run."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread not in (None, threading.current_thread()):
            thread.join()

    # ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        """Run what is due, until no request has come for a while."""
        while True:
            with self._changed:
                numbers = self._next()
                if not numbers:
                    self._thread = None
                    return
                requests = [self._waiting.pop(number) for number in numbers]
            self._run([r for r in requests if r.begin()])

    def _next(self) -> list[int]:
        """The requests of the next run, once it is due; none if the thread should end."""
        while True:
            now = inf if self._is_closed else time.monotonic()
            numbers = self._gatherer.take(now)
            if numbers or self._is_closed:
                return numbers
            due = self._gatherer.due()
            if not self._changed.wait(IDLE if due == inf else max(0.0, due - now)) and not self._waiting:
                return []

    def _run(self, requests: list[_Request]) -> None:
        """Run requests together. If that fails, run halves, so that only a request at fault fails."""
        if not requests:
            return
        try:
            results = self._run_together(requests)
        except BaseException as error:
            if len(requests) == 1 or isinstance(error, (SessionFailed, DeviceLost, Terminated)):
                for request in requests:
                    request.future.set_exception(error)
                return
            half = len(requests) // 2
            self._run(requests[:half])
            self._run(requests[half:])
            return
        for request, result in zip(requests, results, strict=True):
            request.future.set_result(result)

    def _run_together(self, requests: list[_Request]) -> list[list[Any]]:
        names = [name for name in self._names if any(name in r.names for r in requests)]
        feeds = {name: self._joined(name, requests) for name in requests[0].feeds}
        results = self._session.run(names, feeds, _Together(requests), preferred_output_location="cpu")
        found = dict(zip(names, results, strict=True))
        rows = [self._layout.rows(r.dims) for r in requests]
        for name, x in found.items():
            if not isinstance(x, np.ndarray) or x.shape[:1] != (sum(rows),):
                raise InvalidInput(
                    f'output "{name}" has no row for each of {sum(rows)}', hint="output_names leaves it out"
                )
        ends = itertools.accumulate(rows)
        return [
            [self._part(name, found[name], end - n, request.dims) for name in request.names]
            for request, n, end in zip(requests, rows, ends, strict=True)
        ]

    def _joined(self, name: str, requests: list[_Request]) -> np.ndarray:
        parts = [r.feeds[name] for r in requests]
        if len(parts) == 1 or name not in self._layout.batched:
            return parts[0]
        if name not in self._pad:
            return np.concatenate(parts)
        whole = np.full(self._layout.shared_dims([list(x.shape) for x in parts]), self._pad[name], parts[0].dtype)
        start = 0
        for x in parts:
            whole[(slice(start, start + len(x)), *map(slice, x.shape[1:]))] = x
            start += len(x)
        return whole

    def _part(self, name: str, x: np.ndarray, start: int, request: dict[str, list[int]]) -> np.ndarray:
        rows, *others = self._layout.result_dims(name, list(x.shape), request)
        return x[(slice(start, start + rows), *map(slice, others))].copy()


def _stopped() -> Terminated:
    return Terminated("the request was stopped", hint="RunOptions.terminate is set")


def _text(x: np.ndarray) -> str:
    """Equal for equal arrays."""
    content = repr(x.tolist()).encode() if x.dtype == object else x.tobytes()
    return f"{x.shape}{hashlib.sha256(content).hexdigest()}"

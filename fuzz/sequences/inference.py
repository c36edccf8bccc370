"""Sequences of calls of inference sessions."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, multiple, rule

from fuzz.sequences.machine import GPU_FAULTS, PROVIDERS, Machine, close, stopped, stopping_after, together
from fuzz.sequences.network import ADAPTERS, ENTRIES, MODEL, NOBODY, Active, adapter, expected, inputs
from fuzz.sequences.stored_programs import damage, program_cache
from pyruntime import Batcher, GpuTensor, InferenceSession, LoraAdapter, OrtValue, RunOptions, SessionOptions
from pyruntime.errors import (
    DeviceLost,
    ExecutionError,
    InvalidInput,
    PyRuntimeError,
    SessionFailed,
    ShapeError,
    Terminated,
)

SMALL_LIMIT = 2 << 20  # bytes: suffices for a few rows, and not for hundreds


@dataclass(eq=False)
class Opened:
    """limit: of memory, in bytes, or 0"""

    session: InferenceSession
    providers: str
    has_adapters: bool = False
    limit: int = 0
    is_released: bool = False

    def __repr__(self) -> str:
        return f"<{self.providers}>"


@dataclass(eq=False)
class Value:
    """A tensor that a run has returned. held: an array, OrtValue or GpuTensor; numbers: what it must have; may_be_lost:
    its device is lost, or a run that failed was fed it"""

    held: Any
    numbers: np.ndarray = field(repr=False)
    may_be_lost: bool = False
    is_disposed: bool = False

    @property
    def on_gpu(self) -> bool:
        held = self.held
        return isinstance(held, GpuTensor) or isinstance(held, OrtValue) and held.device_name() == "webgpu"

    def __repr__(self) -> str:
        return f"<{type(self.held).__name__} of {len(self.numbers)} rows>"


ROWS = st.sampled_from([1, 2, 3, 7, 64, 200])
SEEDS = st.integers(0, 9)
ACTIVE = st.dictionaries(st.sampled_from(ADAPTERS), st.sampled_from([1.0, -0.5, 2.0]), max_size=2)
NAMES = st.sampled_from([None, ["y"], ["present"], ["present", "y"]])
WAYS = ["run", "run to the GPU", "OrtValues", "binding", "binding to the GPU"]


class InferenceMachine(Machine):
    sessions = Bundle("sessions")
    values = Bundle("values")

    def __init__(self) -> None:
        super().__init__()
        self.held_sessions: list[Opened] = []
        self.held_values: list[Value] = []

    def release_all(self) -> None:
        for one in self.held_sessions:
            one.session.release()
            del one.session  # Hypothesis has references to what the last rule was given
        for value in self.held_values:
            del value.held

    # ── opening and releasing ──

    @initialize(target=sessions, providers=st.sampled_from([*PROVIDERS]))
    def first(self, providers: str) -> Opened:
        return self.open(providers, True, 0, "model")

    @rule(
        target=sessions, providers=st.sampled_from([*PROVIDERS]), has_adapters=st.booleans(),
        limit=st.sampled_from([0, 0, SMALL_LIMIT]), source=st.sampled_from(["model", "model", "program", "cache"]),
    )  # fmt: skip
    def open(self, providers: str, has_adapters: bool, limit: int, source: str) -> Opened:
        """source: "cache" takes the Program from the cache of the process's user, or stores it there"""

        def opened() -> InferenceSession:
            options = options_of(has_adapters, limit)
            if source == "model":
                return InferenceSession(MODEL, options, PROVIDERS[providers])
            if source == "cache":
                with program_cache():
                    return InferenceSession(MODEL, options, PROVIDERS[providers])
            maker = InferenceSession(MODEL, options)
            exported = maker.export(True)
            maker.release()
            return InferenceSession(exported, options)

        allowed = [*(GPU_FAULTS if self.fault and providers == "webgpu" else ()), *self.limits(limit)]
        session, error = self.attempt(f"open {providers}", opened, *allowed)
        self.end_fault()
        if error is not None:
            self.unlimit()
            session, _ = self.attempt(f"open {providers} again", opened)
        made = Opened(session, providers if source != "program" else "wasm", has_adapters, limit)
        self.held_sessions.append(made)
        return made

    @rule(target=sessions, providers=st.sampled_from([*PROVIDERS]), count=st.integers(2, 3), seed=SEEDS)
    def open_at_once(self, providers: str, count: int, seed: int) -> Any:
        """Threads open sessions of the same bytes, whose Program is in the cache. One is released while the others
        run."""
        self.end_fault()

        def work() -> list[Any]:
            with program_cache():
                return together([lambda: InferenceSession(MODEL, options_of(True, 0), PROVIDERS[providers])] * count)

        found, _ = self.attempt(f"open {count} {providers} at once", work)
        for session in found:
            assert not isinstance(session, Exception) or isinstance(session, self.limits()), f"{session!r}"
        made = [Opened(session, providers, True) for session in found if isinstance(session, InferenceSession)]
        self.held_sessions += made
        if not made:
            return multiple()
        feeds = {**inputs(3, seed), "past": NOBODY}
        made[0].is_released = True
        runs = [lambda one=one: one.session.run(None, feeds) for one in made[1:]]
        results, _ = self.attempt("release one of them", lambda: together([made[0].session.release, *runs]))
        for result in results[1:]:
            if isinstance(result, Exception):
                assert isinstance(result, self.limits()), f"{result!r}"
            else:
                close(result[0], expected(feeds, NOBODY, {})["y"])
        return multiple(*made)

    @rule(how=st.sampled_from(["cut", "other bytes", "deleted"]))
    def damage_cache(self, how: str) -> None:
        damage(how)

    @rule(one=sessions)
    def release(self, one: Opened) -> None:
        self.attempt("release", one.session.release)
        one.is_released = True
        self.end_fault()
        assert one.session.state == "released"

    # ── runs ──

    def errors(self, one: Opened, value: Value | None = None) -> tuple[type[Exception], ...]:
        """What a run that is right may raise."""
        found: list[type[Exception]] = [SessionFailed] if one.is_released else []
        found += self.limits(one.limit)
        if self.fault and (one.providers == "webgpu" or value is not None and value.on_gpu):
            found += GPU_FAULTS
        if value is not None and value.may_be_lost:
            found += [DeviceLost, ExecutionError]
        if value is not None and value.is_disposed:
            found.append(InvalidInput)
        return tuple(found)

    def run_options(self, one: Opened, active: Active) -> tuple[RunOptions | None, Active]:
        if not one.has_adapters or not active:
            return None, {}
        options = RunOptions()
        for name, factor in active.items():
            options.add_active_adapter(LoraAdapter(adapter(name)) if name == "later" else name, factor)
        return options, active

    @rule(
        target=values, one=sessions, rows=ROWS, seed=SEEDS, active=ACTIVE, names=NAMES, way=st.sampled_from(WAYS)
    )  # fmt: skip
    def run(self, one: Opened, rows: int, seed: int, active: Active, names: list[str] | None, way: str) -> Any:
        return self.run_with(one, None, rows, seed, active, names, way)

    @rule(
        target=values, one=sessions, value=values, rows=ROWS, seed=SEEDS, active=ACTIVE, names=NAMES,
        way=st.sampled_from(WAYS),
    )  # fmt: skip
    def feed_back(
        self, one: Opened, value: Value, rows: int, seed: int, active: Active, names: list[str] | None, way: str
    ) -> Any:
        return self.run_with(one, value, rows, seed, active, names, way)

    def run_with(
        self, one: Opened, value: Value | None, rows: int, seed: int, active: Active, names: list[str] | None, way: str
    ) -> Any:
        feeds, past = inputs(rows, seed), NOBODY if value is None else value.numbers
        options, active = self.run_options(one, active)
        want = expected(feeds, past, active)
        given = {**feeds, "past": past if value is None else value.held}
        asked = names or ["y", "present"]

        def work() -> list[Any]:
            return outputs_by(way, one.session, asked, given, options)

        found, error = self.attempt(f"{way} {rows} rows", work, *self.errors(one, value))
        self.end_fault()
        if error is not None:
            if value is not None:
                value.may_be_lost = True
            return multiple()
        assert not one.is_released, "a released session ran"
        made = [self.keep(x, want[name]) for name, x in zip(asked, found, strict=True)]
        return multiple(*[x for x, name in zip(made, asked, strict=True) if name == "present"])

    def keep(self, x: Any, numbers: np.ndarray) -> Value:
        """A result, which is right, as a value for later runs."""
        value = Value(x, numbers)
        self.check(value)
        self.held_values.append(value)
        return value

    def check(self, value: Value) -> None:
        held = value.held
        close(held if isinstance(held, np.ndarray) else held.get_data() if isinstance(held, GpuTensor)
              else held.numpy(), value.numbers)  # fmt: skip

    @rule(value=values)
    def read(self, value: Value) -> None:
        """A value still has what the run returned, whatever has run since."""
        allowed = (DeviceLost, ExecutionError) if value.may_be_lost else ()
        self.attempt("read", lambda: self.check(value), *allowed, *([InvalidInput] if value.is_disposed else []))

    @rule(value=values)
    def dispose(self, value: Value) -> None:
        if isinstance(value.held, GpuTensor):
            value.held.dispose()
            value.is_disposed = True

    # ── several runs ──

    @rule(one=sessions, sizes=st.lists(ROWS, min_size=2, max_size=4), seed=SEEDS, active=ACTIVE,
          wrong=st.sampled_from(["", "", "index", "feed", "stop"]))  # fmt: skip
    def at_once(self, one: Opened, sizes: list[int], seed: int, active: Active, wrong: str) -> None:
        """Runs on threads of their own. wrong: what is at fault in the first one alone"""
        options, active = self.run_options(one, active)
        jobs = [{**inputs(rows, seed + n), "past": NOBODY} for n, rows in enumerate(sizes)]
        sent, first = [dict(feeds) for feeds in jobs], options
        if wrong == "index":
            sent[0]["i"] = np.full(sizes[0], ENTRIES + 7)
        elif wrong == "feed":
            del sent[0]["x"]
        elif wrong == "stop":
            first = stopped()

        def work() -> list[Any]:
            return together(
                [lambda n=n: one.session.run(None, sent[n], options if n else first) for n in range(len(sent))]
            )

        errors = self.errors(one)
        found, _ = self.attempt(f"{len(sizes)} at once {wrong}", work)
        self.end_fault()
        kinds = {"index": ExecutionError, "feed": InvalidInput, "stop": Terminated}
        for n, (result, feeds) in enumerate(zip(found, jobs, strict=True)):
            if n == 0 and wrong:
                assert isinstance(result, (kinds[wrong], *errors)), f"{wrong}: {result!r}"
            elif isinstance(result, Exception):
                assert isinstance(result, errors), f"the run {n} beside {wrong or 'others'} failed: {result!r}"
            else:
                want = expected(feeds, NOBODY, active)
                close(result[0], want["y"])
                close(result[1], want["present"])

    @rule(one=sessions, sizes=st.lists(ROWS, min_size=1, max_size=3), seed=SEEDS)
    def asynchronous(self, one: Opened, sizes: list[int], seed: int) -> None:
        jobs = [{**inputs(rows, seed + n), "past": NOBODY} for n, rows in enumerate(sizes)]
        ended = [threading.Event() for _ in jobs]
        found: list[Any] = [None] * len(jobs)

        def done(results: list[Any], number: int, error: str) -> None:
            found[number] = results, error
            ended[number].set()

        errors = self.errors(one)
        for n, feeds in enumerate(jobs):
            self.attempt("run_async", lambda n=n, feeds=feeds: one.session.run_async(None, feeds, done, n))
        for event in ended:
            assert event.wait(60), "run_async has not called back"
        self.end_fault()
        for (results, error), feeds in zip(found, jobs, strict=True):
            assert not error or errors, error
            if not error:
                close(results[0], expected(feeds, NOBODY, {})["y"])

    @rule(one=sessions, sizes=st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=5), seed=SEEDS, active=ACTIVE,
          wrong=st.sampled_from(["", "", "index", "stop", "cancel"]))  # fmt: skip
    def batch(self, one: Opened, sizes: list[int], seed: int, active: Active, wrong: str) -> None:
        """Requests of a Batcher, of which the first is at fault."""
        options, active = self.run_options(one, active)
        jobs = [inputs(rows, seed + n) for n, rows in enumerate(sizes)]
        sent = [{**feeds, "past": NOBODY} for feeds in jobs]
        if wrong == "index":
            sent[0]["i"] = np.full(sizes[0], ENTRIES + 7)
        errors = self.errors(one)

        def work() -> list[Any]:
            with Batcher(one.session, size=6, wait=1.0, dim="N", output_names=["y"]) as batcher:
                futures = [
                    batcher.submit(["y"], feeds, stopped() if wrong == "stop" and n == 0 else options)
                    for n, feeds in enumerate(sent)
                ]
                if wrong == "cancel":
                    futures[0].cancel()
                found: list[Any] = []
                for future in futures:
                    try:
                        found.append(None if future.cancelled() else future.result(60))
                    except PyRuntimeError as error:
                        error.__traceback__ = None
                        found.append(error)
                return found

        found, error = self.attempt(f"batch {sizes} {wrong}", work, *errors)
        self.end_fault()
        if error is not None:
            return
        kinds = {"index": ExecutionError, "stop": Terminated}
        for n, (result, feeds) in enumerate(zip(found, jobs, strict=True)):
            if n == 0 and wrong in kinds:
                assert isinstance(result, (kinds[wrong], *errors)), f"{wrong}: {result!r}"
            elif isinstance(result, Exception):
                assert isinstance(result, errors), f"request {n} beside {wrong or 'others'} failed: {result!r}"
            elif result is not None:
                close(result[0], expected(feeds, NOBODY, active)["y"])

    # ── what is refused or stopped ──

    @rule(one=sessions, rows=ROWS, seconds=st.sampled_from([0.0, 0.0005, 0.002, 0.02]), seed=SEEDS)
    def stop(self, one: Opened, rows: int, seconds: float, seed: int) -> None:
        feeds = {**inputs(rows, seed), "past": NOBODY}
        options = stopped() if seconds == 0 else stopping_after(seconds)
        errors = (Terminated, *self.errors(one))
        found, error = self.attempt("stop", lambda: one.session.run(None, feeds, options), *errors)
        self.end_fault()
        assert error is not None or seconds > 0, "a run that was stopped before it began has ended"
        if error is None:
            close(found[0], expected(feeds, NOBODY, {})["y"])

    @rule(one=sessions, value=values, kind=st.sampled_from(["missing", "type", "width", "rows", "name", "output",
                                                            "adapter"]))  # fmt: skip
    def wrong(self, one: Opened, value: Value, kind: str) -> None:
        feeds: dict[str, Any] = {**inputs(3, 0), "past": value.held}
        names, options = ["y"], None
        if kind == "missing":
            del feeds["x"]
        elif kind == "type":
            feeds["x"] = feeds["x"].astype(np.float64)
        elif kind == "width":
            feeds["x"] = feeds["x"][:, 1:]
        elif kind == "rows":
            feeds["i"] = feeds["i"][1:]
        elif kind == "name":
            feeds["z"] = feeds["x"]
        elif kind == "output":
            names = ["z"]
        else:
            options = RunOptions()
            options.add_active_adapter("nobody")
        errors = (InvalidInput, ShapeError, *self.errors(one, value))
        self.refused(f"wrong {kind}", lambda: one.session.run(names, feeds, options), *errors)
        self.end_fault()

    @rule(one=sessions, value=values, way=st.sampled_from(WAYS))
    def index(self, one: Opened, value: Value, way: str) -> None:
        """A fault that only kernels see. It may have overwritten the rows of the cache that was fed."""
        feeds = {**inputs(3, 0), "i": np.full(3, ENTRIES), "past": value.held}
        errors = (ExecutionError, *self.errors(one, value))
        self.refused("index", lambda: outputs_by(way, one.session, ["y", "present"], feeds, None), *errors)
        self.end_fault()
        value.may_be_lost = True

    # ── other work ──

    @rule(one=sessions, act=st.sampled_from(["trim", "prepare", "profile", "explain", "memory", "providers",
                                             "export", "verify"]))  # fmt: skip
    def other(self, one: Opened, act: str) -> None:
        session, feeds = one.session, {**inputs(3, 0), "past": NOBODY}
        work = {
            "trim": session.trim,
            "prepare": lambda: session.prepare({"N": 64, "P": 7}),
            "profile": lambda: session.profile(feeds),
            "explain": session.explain,
            "memory": session.memory,
            "providers": lambda: session.set_providers(PROVIDERS[one.providers]),
            "export": lambda: session.export(True),
            "verify": lambda: session.verify(feeds),
        }[act]
        errors = [*self.errors(one), *([InvalidInput] if act in ("providers", "verify", "export") else [])]
        if act in ("explain", "memory"):  # a run that a limit refused may have left nothing that is compiled
            errors += [SessionFailed] if self.limits() else []
        _, error = self.attempt(act, work, *errors)
        self.end_fault()
        if one.is_released and act not in ("trim",):
            assert error is not None, f"a released session did {act}"

    def lost(self) -> None:
        for value in self.held_values:
            value.may_be_lost = value.may_be_lost or value.on_gpu


def options_of(has_adapters: bool, limit: int) -> SessionOptions:
    """limit: of memory, in bytes, or 0"""
    options = SessionOptions()
    if has_adapters:
        options.adapters = {name: adapter(name) for name in ("one", "two")}
    if limit:
        options.memory_limit = limit
    return options


def outputs_by(
    way: str, session: InferenceSession, names: list[str], feeds: Mapping[str, Any], options: RunOptions | None
) -> list[Any]:
    place = "webgpu" if way.endswith("GPU") else "cpu"
    if way.startswith("run"):
        where = "gpu-buffer" if place == "webgpu" else None
        return session.run(names, feeds, options, preferred_output_location=where)
    values = {name: x if isinstance(x, OrtValue) else OrtValue(x) for name, x in feeds.items()}
    if way == "OrtValues":
        return session.run_with_ort_values(names, values, options)
    binding = session.io_binding()
    for name, x in values.items():
        binding.bind_ortvalue_input(name, x)
    for name in names:
        binding.bind_output(name, place)
    session.run_with_iobinding(binding, options)
    return binding.get_outputs()

"""What the state machines share: calls that may raise expected errors, threads, faults of the GPU, and a check at the
end that nothing has leaked."""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import wgpu
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pyruntime import PyRuntimeError, RunOptions, set_memory_limit, stats
from pyruntime.errors import DeviceLost, ExecutionError, InternalError, MemoryFault, NeedsValue, OutOfMemory
from pyruntime.native.gpu.device import warn_once
from pyruntime.providers.webgpu import wgpu_device
from pyruntime.providers.webgpu.wgpu_host import GpuHost

HANG = 120  # seconds that one call may take
BUGS = (InternalError, MemoryFault, NeedsValue)  # never an answer
GPU_FAULTS = (DeviceLost, ExecutionError, OutOfMemory)
PROVIDERS: dict[str, list[Any]] = {
    "wasm": ["wasm"],
    "webgpu": ["webgpu"],
    "both": ["webgpu", "wasm"],
    "auto": ["auto"],
}
_real_description = wgpu_device._describe


def seem_hardware() -> None:
    """Let the adapter seem to be hardware: sessions avoid a software adapter, on which few kernels pay."""
    wgpu_device._describe = lambda found: replace(_real_description(found), software=False)
    wgpu_device._devices = {}


def of_machine(examples: int, steps: int, is_minimised: bool = True, is_fixed: bool = False) -> settings:
    """Settings of a state machine. is_fixed: each run draws the same sequences"""
    phases = [Phase.generate, Phase.shrink] if is_minimised else [Phase.generate]
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, derandomize=is_fixed,
        phases=phases, suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip


class Faults:
    """Faults of the GPU, caused once or several times and then over."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self.happened = 0

    def _replace(self, owner: Any, name: str, act: Callable[..., Any]) -> None:
        real = getattr(owner, name)
        self._undo.append(lambda: setattr(owner, name, real))
        setattr(owner, name, lambda *args, **kwargs: act(real, *args, **kwargs))

    def end(self) -> None:
        while self._undo:
            self._undo.pop()()

    def lose_device(self) -> None:
        for device in [*wgpu_device._devices.values()]:
            device.destroy()

    def lose_device_in_run(self, at: int) -> None:
        """The device is lost after a number of submissions."""
        left = [at]

        def encode(real: Any, host: Any, dispatches: Any) -> None:
            real(host, dispatches)
            left[0] -= 1
            if left[0] == 0:
                self.happened += 1
                host.own.destroy()

        self._replace(GpuHost, "encode", encode)

    def refuse_allocations(self, first: int, times: int) -> None:
        """The first allocation of a session that fails, counted from 1, and how many fail."""
        count = [0]

        def create_buffer(real: Any, device: Any, **how: Any) -> Any:
            if how.get("label") in ("arena", "tensor"):
                count[0] += 1
                if first <= count[0] < first + times:
                    self.happened += 1
                    raise wgpu.GPUOutOfMemoryError("refused on purpose")
            return real(device, **how)

        self._replace(type(wgpu_device.shared_device().wgpu), "create_buffer", create_buffer)

    def refuse_shaders(self, first: int, times: int) -> None:
        count = [0]

        def compile_shader(real: Any, host: Any, shader: Any, label: str) -> Any:
            count[0] += 1
            if first <= count[0] < first + times:
                self.happened += 1
                shader = replace(shader, source=shader.source.replace("fn main", "fn main("))
            return real(host, shader, label)

        self._replace(GpuHost, "_compile", compile_shader)


class Machine(RuleBasedStateMachine):
    """One example: sessions are opened and used by rules, and all are released at the end. `counts` are those of the
    process; log: a file that has the calls of the newest example, for one that ends the process. All machines have
    rules that cause faults of the GPU and limit the memory of the process."""

    counts = {"examples": 0, "calls": 0, "refused": 0}
    log: Path | None = None

    def __init__(self) -> None:
        super().__init__()
        gc.collect()
        Machine.counts["examples"] += 1
        self.before = _held()
        self.faults = Faults()
        self.fault = ""  # armed, for the next call
        self.is_limited = False  # the memory of the process
        warn_once.cache_clear()
        if self.log is not None:
            self.log.write_text("")

    # ── calls ──

    def attempt(self, what: str, work: Callable[[], Any], *allowed: type[Exception]) -> tuple[Any, Exception | None]:
        """The result of a call, or the error that the sequence has made possible."""
        Machine.counts["calls"] += 1
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{type(self).__name__} {what} {self.fault}\n")
        if hasattr(faulthandler, "dump_traceback_later"):
            faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return work(), None
        except PyRuntimeError as error:
            if not isinstance(error, allowed) or isinstance(error, BUGS):
                raise
            Machine.counts["refused"] += 1
            error.__traceback__ = None  # its frames have references to sessions and tensors
            error.__context__ = error.__cause__ = None
            return None, error
        finally:
            faulthandler.cancel_dump_traceback_later()

    def refused(self, what: str, work: Callable[[], Any], *expected: type[Exception]) -> None:
        """A call that must raise."""
        _, error = self.attempt(what, work, *expected)
        assert error is not None, f"{what} was not refused"

    def end_fault(self) -> bool:
        """The armed fault is over. Returns whether it has happened."""
        happened = self.fault != "" and self.faults.happened > 0
        self.faults.end()
        self.fault, self.faults.happened = "", 0
        return happened

    # ── what any session may meet ──

    @rule(at=st.integers(1, 3), times=st.integers(1, 3), kind=st.sampled_from(["allocation", "shader", "lost"]))
    def arm(self, at: int, times: int, kind: str) -> None:
        """The next call meets this fault, if it gets so far."""
        self.end_fault()
        self.fault = kind
        if kind == "allocation":
            self.faults.refuse_allocations(at, times)
        elif kind == "shader":
            self.faults.refuse_shaders(at, times)
        else:
            self.faults.lose_device_in_run(at)
            self.lost()

    @rule()
    def lose_device(self) -> None:
        self.end_fault()
        self.faults.lose_device()
        self.lost()

    def lost(self) -> None:
        """The GPU is lost, or will be in the next call."""

    @rule(linear=st.sampled_from([None, None, 1 << 18, 2 << 20, 8 << 20]), gpu=st.sampled_from([None, None, 1 << 18]))
    def limit_process(self, linear: int | None, gpu: int | None) -> None:
        """Limit the memory of all sessions together, or end the limits."""
        set_memory_limit(linear, gpu)
        self.is_limited = linear is not None or gpu is not None

    def unlimit(self) -> None:
        set_memory_limit(None, None)
        self.is_limited = False

    def limits(self, limit: int = 0) -> tuple[type[Exception], ...]:
        """What limits of memory may raise. limit: of a session, in bytes, or 0"""
        return (OutOfMemory,) if limit or self.is_limited else ()

    def teardown(self) -> None:
        self.end_fault()
        self.unlimit()
        self.release_all()
        for attribute in [*vars(self)]:
            if attribute.startswith("held_"):
                delattr(self, attribute)
        self.bundles.clear()
        self.names_to_values.clear()
        gc.collect()
        end = time.monotonic() + 10
        while self.has_more() and time.monotonic() < end:
            time.sleep(0.01)
            gc.collect()
        assert not self.has_more(), (self.before, _held())

    def has_more(self) -> bool:
        """Whether the process holds more than before. It may hold less: limits free memory of idle sessions, which an
        earlier test may have left."""
        return any(value > self.before[name] for name, value in _held().items())

    def release_all(self) -> None:
        raise NotImplementedError


def _held() -> dict[str, int]:
    """What the process holds: sessions, GPU tensors, and their bytes."""
    found = stats()
    return {"sessions": found.sessions, "tensors": found.tensors, "bytes": found.tensor_bytes, "arenas": found.arenas}


def together(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """The result or the PyRuntimeError of each job, each on a thread of its own."""
    found: list[Any] = [None] * len(jobs)

    def work(n: int) -> None:
        try:
            found[n] = jobs[n]()
        except Exception as error:
            error.__traceback__ = None
            found[n] = error

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive(), "a call has not ended"
    for result in found:
        if isinstance(result, Exception) and (not isinstance(result, PyRuntimeError) or isinstance(result, BUGS)):
            raise result
    return found


def stopping_after(seconds: float) -> RunOptions:
    """Run options that another thread sets to terminate."""
    options = RunOptions()
    timer = threading.Timer(seconds, setattr, (options, "terminate", True))
    timer.daemon = True
    timer.start()
    return options


def stopped() -> RunOptions:
    options = RunOptions()
    options.terminate = True
    return options


def close(found: Any, expected: Any) -> None:
    found = np.asarray(found)
    assert found.shape == expected.shape, f"shape {found.shape}, expected {expected.shape}"
    wrong = ~np.isclose(found, expected, rtol=2e-4, atol=2e-4, equal_nan=True)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} numbers differ, first at {np.argwhere(wrong)[:1]}"


logging.getLogger("pyruntime").setLevel(logging.CRITICAL)
os.environ.setdefault("PYRUNTIME_DISABLE_PROGRAM_CACHE", "1")

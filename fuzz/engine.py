"""The engine's own answers: of the session, of its twins, which must agree with it, and of the slow evaluator."""

from __future__ import annotations

import gc
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError

from fuzz.minimise import pruned
from fuzz.node import full_name, nodes
from kit.gpu import GPU_IN_PAGES
from kit.interpret import run as interpret
from pyruntime import InferenceSession, RunOptions, SessionOptions
from pyruntime.codegen.step_ranges import as_work_units
from pyruntime.errors import NeedsValue, PyRuntimeError
from pyruntime.passes.loops import whole_loops
from pyruntime.providers.wasm.threads import cost
from pyruntime.training.derive import long_loops

MEMORY = 128 << 20  # bytes a session may use
ENDLESS = 6.0  # seconds of processor time until a model with a loop is stopped: it may ask for 2^63 rounds


@dataclass(frozen=True)
class Twin:
    """A way to run a model that must not change its results."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    dims: str = ""  # how inputs' shapes are declared: "" as they are, "symbolic" or "rankless"
    providers: tuple[Any, ...] = ("wasm",)
    page: bool = False  # in Chromium
    steps: int = 0  # of a range and of a turn of loops, if not 0


PLAIN = Twin("session")
WEBGPU = Twin("WebGPU", providers=("webgpu",))  # as many kernels as possible on the GPU
TWINS = [
    Twin("level disabled", {"graph_optimization_level": "disabled"}),
    Twin("level basic", {"graph_optimization_level": "basic"}),
    Twin("level extended", {"graph_optimization_level": "extended"}),
    Twin("two threads", {"intra_op_num_threads": 2}),
    Twin("plain SIMD", {"relaxed_simd": False}),
    Twin("no machine code", {"native_code": False}),
    Twin("AVX2", {"native_code": "avx2"}),
    Twin("loops step by step", {"disabled_passes": ["hoisted_products", "whole_loops"]}),
    Twin("loops in short turns", steps=3),
    Twin("symbolic shapes", {}, "symbolic"),
    Twin("unknown ranks", {}, "rankless"),
    WEBGPU,
]


IN_PAGES = [Twin("Chromium", page=True), Twin("Chromium, WebGPU", providers=(GPU_IN_PAGES, "wasm"), page=True)]


@dataclass(frozen=True)
class Failed:
    """A failure: by one of the package's error classes (typed), or by an error that users must not see."""

    typed: bool
    kind: str  # the error's class, and the function that raised it
    message: str


Answer = list[Any] | Failed


def failure(error: BaseException) -> Failed:
    """The description of an error; typed if it is a PyRuntimeError that does not stand for a bug."""
    name = type(error).__name__
    typed = isinstance(error, PyRuntimeError) and name not in ("InternalError", "MemoryFault", "NeedsValue")
    typed = typed and "out of bounds memory access" not in str(error)  # a trap in a kernel: a bounds check is missing
    cause = error
    while isinstance(cause, PyRuntimeError) and (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    frames = traceback.extract_tb(cause.__traceback__)
    own = [f for f in frames if "pyruntime" in f.filename or "providers" in f.filename]
    at = f" {Path(own[-1].filename).name}:{own[-1].name}" if own else ""
    kind = f"{name}: {type(cause).__name__}{at}"
    return Failed(typed, kind, f"{name}: {str(error)[:400]}")


class TwinSession:
    """A session of a model with a twin's options."""

    def __init__(self, model: bytes, twin: Twin, options: Mapping[str, Any]) -> None:
        made = SessionOptions(**{"memory_limit": MEMORY, "log_severity_level": 4, **options, **twin.options})
        self.steps = twin.steps
        with short_turns(self.steps):
            self.session = InferenceSession(redeclared(model, twin.dims), made, list(twin.providers))
        self.loops = has_loop(model)

    def run(self, feeds: Any, names: Sequence[str] | None = None) -> Answer:
        stop, over = RunOptions(), threading.Event()
        if self.loops:
            threading.Thread(target=_stop_endless, args=(stop, over), daemon=True).start()
        try:
            with short_turns(self.steps):  # a session may compile when it runs
                return list(self.session.run(names, feeds, stop))
        except Exception as error:
            return failure(error)
        finally:
            over.set()


@contextmanager
def short_turns(steps: int) -> Iterator[None]:
    """Sessions that are compiled meanwhile run so many steps of loops in a range or turn, and divide gradients of loops
    into chunks of so many. 0: as always"""
    if not steps:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_loops, "turn_length", lambda unit: steps)
        patch.setattr(cost, "as_work_units", lambda kernel, _: as_work_units(kernel, steps))
        patch.setattr(long_loops, "CHUNK", steps)
        patch.setattr(long_loops, "LONG", 2 * steps)
        yield


def _stop_endless(options: RunOptions, over: threading.Event) -> None:
    begin = time.process_time()
    while not over.wait(0.1):
        if time.process_time() - begin > ENDLESS:
            options.terminate = True
            return


def answers(model: bytes, runs: Sequence[Any], twin: Twin, options: Mapping[str, Any]) -> list[Answer]:
    """The answers of all runs, in order, on one session."""
    try:
        session = TwinSession(model, twin, options)
    except Exception as error:
        return [failure(error)] * max(len(runs), 1)
    return [session.run(feeds) for feeds in runs]


def has_loop(model: bytes) -> bool:
    try:
        return any(full_name(node) == "Loop" for node in nodes(onnx.load_from_string(model).graph))
    except DecodeError:  # hostile, or a program
        return False


def rounds(model: bytes, runs: Sequence[Any]) -> list[int]:
    """The number of rounds that each outer loop asks for, if the nodes before it can compute it."""
    made = onnx.load_from_string(model)
    names = [node.input[0] for node in made.graph.node if full_name(node) == "Loop" and node.input[0]]
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in made.graph.initializer}
    found = [{**weights, **feeds}[n] for feeds in runs for n in names if n in weights or n in feeds]
    for name in names:
        before = pruned(made, [name]).SerializeToString()
        needed = {i.name for i in onnx.load_from_string(before).graph.input}
        fed = [{k: v for k, v in feeds.items() if k in needed} for feeds in runs]
        found += [a[0] for a in answers(before, fed, PLAIN, {}) if not isinstance(a, Failed)]
    return [int(np.ravel(x)[0]) for x in found]


def redeclared(model: bytes, how: str) -> bytes:
    """The model with symbolic dims for its inputs, or without their ranks."""
    if not how:
        return model
    made = onnx.load_from_string(model)
    for value in made.graph.input:
        if value.type.WhichOneof("value") == "tensor_type":
            tensor = value.type.tensor_type
            if how == "rankless":
                tensor.ClearField("shape")
            else:
                for n, dim in enumerate(tensor.shape.dim):
                    dim.dim_param = dim.dim_param or f"{value.name}_{n}"
    del made.graph.value_info[:]
    for value in made.graph.output:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    return made.SerializeToString()


class TooSlow(Exception):
    """The slow evaluator exceeded its time."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    gc.disable()  # an exception in a finalizer is lost, and then nothing would stop the evaluator
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def evaluated(model: bytes, feeds: Mapping[str, Any], seconds: float = 1.0) -> list[Any] | Failed | None:
    """The slow evaluator's answer, or its failure. None if it takes too long, or refuses by an error that is no bug: it
    traces by other shapes than a session, so that it may refuse (UnsupportedOp, NeedsValue, ShapeError) what a session
    answers. Any other exception is a bug: the evaluator is the definition that the kernels are tested against."""
    try:
        with alarm(seconds):
            return interpret(model, dict(feeds))
    except (TooSlow, NeedsValue, MemoryError):
        return None
    except Exception as error:
        found = failure(error)
        return None if found.typed else found


def plain(feeds: Any) -> Any:
    """Feeds as peers accept them: contiguous, of native byte order."""
    if isinstance(feeds, np.ndarray):
        native = feeds.astype(feeds.dtype.newbyteorder("=")) if feeds.dtype.kind in "iuf" else feeds
        return np.ascontiguousarray(native).reshape(feeds.shape)
    if isinstance(feeds, list):
        return [plain(v) for v in feeds]
    return {k: plain(v) for k, v in feeds.items()} if isinstance(feeds, dict) else feeds

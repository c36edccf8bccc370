"""The peers: onnxruntime without optimisation, and onnx's reference evaluator, in a separate process, since they may
crash or hang."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from fuzz.node import full_name, nodes, operators
from fuzz.parent_death import end_with_parent

LIMIT = 6.0  # seconds for one peer's answer
FLAT = 13  # before this opset Softmax, LogSoftmax and Hardmax flatten all axes from theirs on
SOFTMAX = operators("Softmax LogSoftmax Hardmax")
BYTES = 6 << 30  # of address space

Answer = list[Any] | str  # outputs, or the reason why there are none


class Refused(Exception):
    """A peer does not answer."""


def onnxruntime_session(model: bytes) -> Callable[[dict[str, Any]], list[Any]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(_with_names(model), options, providers=["CPUExecutionProvider"])
    return lambda feeds: list(session.run(None, feeds))


def _with_names(model: bytes) -> bytes:
    """The model with a name for each absent output: onnxruntime refuses them unless a schema marks them optional."""
    import onnx

    made = onnx.load_from_string(model)
    for n, node in enumerate(made.graph.node):
        node.output[:] = [name or f"absent/{n}/{k}" for k, name in enumerate(node.output)]
    return made.SerializeToString()


def reference_session(model: bytes) -> Callable[[dict[str, Any]], list[Any]]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    made = onnx.load_from_string(model)
    opset = min((i.version for i in made.opset_import if i.domain in ("", "ai.onnx")), default=FLAT)
    if opset < FLAT and any(full_name(node) in SOFTMAX for node in nodes(made.graph)):
        raise Refused("it knows only the newer meaning of Softmax")
    session = ReferenceEvaluator(made)
    return lambda feeds: list(session.run(None, feeds))


PEERS = {"onnxruntime": onnxruntime_session, "reference": reference_session}


def serve(connection: Connection) -> None:
    """Answers (peer, model, runs) with a list of answers, until the pipe closes."""
    end_with_parent()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.dup2(2, 1)
    while True:
        try:
            peer, model, runs = connection.recv()
        except EOFError:
            return
        connection.send([_answer(peer, model, feeds) for feeds in runs])


def _answer(peer: str, model: bytes, feeds: dict[str, Any]) -> Answer:
    try:
        return PEERS[peer](model)(dict(feeds))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"


def no_answer(peer: str) -> str:
    """The answer of a peer that exceeds its time."""
    return f"Refused: {peer} gives no answer in time"


class Subprocess:
    """A process that runs `serve`; restarted if it dies or exceeds its time."""

    def __init__(self, serve: Callable[[Connection], None]) -> None:
        self.serve = serve
        self.process: Any = None
        self.connection: Any = None

    def request(self, what: tuple[Any, ...], seconds: float) -> Any:
        """The answer; "late" or "died" if there is none."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.connection, theirs = context.Pipe()
            self.process = context.Process(target=self.serve, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        try:
            self.connection.send(what)
            if self.connection.poll(seconds):
                return self.connection.recv()
            why = "late"
        except (EOFError, OSError, ValueError):
            why = "died"
        self.stop()
        return why

    def stop(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.join()
            self.connection.close()
            self.process = None


class Peers(Subprocess):
    """Asks the peers; the answer of one that dies or exceeds its time is a text that says so."""

    def __init__(self) -> None:
        super().__init__(serve)

    def ask(self, peer: str, model: bytes, runs: Sequence[dict[str, Any]]) -> list[Answer]:
        found = self.request((peer, model, list(runs)), LIMIT + 0.5 * len(runs))
        if isinstance(found, str):
            return [no_answer(peer) if found == "late" else f"Refused: {peer} died"] * len(runs)
        return found

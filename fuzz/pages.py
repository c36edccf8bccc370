"""The built package in Chromium, as a twin of the native session. A separate process owns the browser, so that the
browser ends with it, however it ends."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import onnx

from fuzz.engine import MEMORY, Answer, Failed, Twin
from fuzz.node import code_of
from fuzz.parent_death import end_with_parent
from fuzz.peers import Subprocess
from pyruntime import errors

LIMIT = 30.0  # seconds an answer may take
UNTYPED = {"InternalError", "MemoryFault", "NeedsValue"}  # error classes of ours that stand for bugs


class Pages(Subprocess):
    """Runs cases in a page; restarts a browser that has died."""

    def __init__(self) -> None:
        super().__init__(serve)

    def answers(self, model: bytes, runs: Sequence[Any], twin: Twin) -> list[Answer]:
        """Of all runs, in turn, on one session."""
        found = self.request((model, list(runs), list(twin.providers)), 60 + LIMIT * (1 + len(runs)))
        return [Failed(False, "browser", found)] * max(len(runs), 1) if isinstance(found, str) else found


def declaring(model: bytes, answers: Sequence[Any]) -> bytes:
    """The model with types for its outputs: a page returns types without a JavaScript array as raw bits, and the bridge
    converts them by the declared type."""
    got = next((a for a in answers if isinstance(a, list)), None)
    made = onnx.load_from_string(model)
    for output, x in zip(made.graph.output, got or [], strict=False):
        if isinstance(x, np.ndarray) and not output.type.WhichOneof("value"):
            output.type.tensor_type.elem_type = code_of(x)
    return made.SerializeToString()


def serve(connection: Connection) -> None:
    """Answers (model, runs, providers) with a list of answers, until the pipe closes."""
    end_with_parent()
    os.setpgid(0, 0)  # the browser's driver outlives the worker's group, sees its pipe close, and stops the browser
    warnings.simplefilter("ignore")
    from kit import chromium

    with chromium.launch() as browser, chromium.serve() as server:
        engine = chromium.Engine(browser.new_page(), server.url, LIMIT)
        while True:
            try:
                model, runs, providers = connection.recv()
            except EOFError:
                return
            connection.send(_answers(engine, model, runs, providers))


def _answers(engine: Any, model: bytes, runs: Sequence[Any], providers: list[str]) -> list[Answer]:
    from kit.chromium import BrowserError

    def tried(ask: Any) -> Any:
        try:
            return ask()
        except BrowserError as error:
            known = getattr(errors, error.kind, None)
            typed = (
                isinstance(known, type) and error.kind not in UNTYPED or error.kind in ("NoAdapter", "QuotaExceeded")
            )
            return Failed(typed, error.kind, str(error)[:400])
        except TimeoutError as error:
            return Failed(False, "TimeoutError", str(error))

    session = tried(lambda: engine.open(model, executionProviders=providers, memoryLimit=MEMORY, logSeverityLevel=4))
    if isinstance(session, Failed):
        return [session] * max(len(runs), 1)
    found = [tried(lambda feeds=feeds: session.run(None, feeds)) for feeds in runs]
    tried(session.release)
    return found

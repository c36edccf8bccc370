"""Worker processes with limits: one that takes too long or too much memory is ended, which is a finding."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import Any

from fuzz.case import Case, Verdict
from fuzz.worker import serve

GB = 1 << 30
# For one step: seconds of processor time, and bytes more than at its begin.
OURS = (10.0, GB)
OTHERS = (60.0, 4 * GB)  # a step of a peer, whose answers this process holds, too, or of the fuzzer
WAIT = 60.0  # seconds without any processor time: a deadlock, even on a loaded machine
MAKING = "making the case"
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class FuzzerFault(Exception):
    """A bug of the fuzzer itself."""


class Worker:
    """One process, started on first use and again after each death. pages: run cases in Chromium, too."""

    def __init__(self, pages: bool = False) -> None:
        self.pages = pages
        self.process: Any = None

    def make(self, target: str, seed: int, index: int) -> Case | None:
        made = self._ask(("make", target, seed, index))
        return None if isinstance(made, Verdict) else made

    def fuzz(self, target: str, seed: int, index: int) -> Verdict:
        """Makes the case and judges it."""
        return self._ask(("fuzz", target, seed, index))

    def judge(self, case: Case, name: str) -> Verdict:
        return self._ask(("judge", case, name))

    def stop(self) -> None:
        """Ends the process and its children."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self.process.kill()
        self.process.join()
        self.connection.close()
        self.process = None

    def _start(self) -> None:
        if self.process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.pages))
        self.process.start()
        theirs.close()
        if not self.connection.poll(120) or self.connection.recv()[0] != "ready":
            raise RuntimeError("a worker does not start")

    def _ask(self, request: tuple[Any, ...]) -> Any:
        self._start()
        self.connection.send(request)
        step, ours = MAKING if request[0] in ("make", "fuzz") else "reading the case", False
        while True:
            used = moved = self._seconds()
            held, since = self._bytes(), time.monotonic()
            while not self.connection.poll(0.1):
                if moved != (now := self._seconds()):
                    moved, since = now, time.monotonic()
                if trouble := self._trouble(moved - used, since, held, *(OURS if ours else OTHERS)):
                    self.stop()
                    return Verdict("hang", f"{step}: {trouble}", f"{step}: {trouble}")
            try:
                kind, *rest = self.connection.recv()
            except (EOFError, ConnectionResetError):
                self.process.join()
                code = self.process.exitcode
                self.stop()
                if step == MAKING:  # by onnx, whose shape inference aborts on some models
                    return Verdict("no case")
                return Verdict("crash", f"{step}: exit code {code}", f"the process ended at {step}: exit code {code}")
            if kind == "fault":
                raise FuzzerFault(f"{request[:4]}\n{rest[0]}")
            if kind == "done":
                return rest[0]
            step, ours = rest

    def _trouble(self, used: float, since: float, held: int, seconds: float, size: int) -> str:
        if used > seconds:
            return f"over {seconds:g} s"
        if time.monotonic() - since > WAIT:
            return f"over {WAIT:g} s of waiting"
        return f"over {size // GB} GB" if self._bytes() - held > size else ""

    def _seconds(self) -> float:
        fields = self._read("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK if fields else 0.0

    def _bytes(self) -> int:
        return int((self._read("statm").split() or ["0", "0"])[1]) * PAGE

    def _read(self, name: str) -> str:
        try:
            with open(f"/proc/{self.process.pid}/{name}") as file:
                return file.read()
        except OSError:
            return ""

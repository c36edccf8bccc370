"""Distributes cases over worker processes, with a time limit for each; replaces a worker that hangs or dies."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
START_LIMIT = 180.0  # seconds; includes the start of a browser


@dataclass(frozen=True)
class Result:
    name: str
    error: str
    seconds: float
    wholly: bool = False  # every kernel of the case ran on the provider


class Worker:
    """One process of kit.conformance.worker, started on first use."""

    def __init__(self, where: str, provider: str) -> None:
        self.command = [sys.executable, "-m", "kit.conformance.worker", where, provider]
        self.process: subprocess.Popen[str] | None = None

    def run(self, name: str, limit: float) -> Result:
        if self.process is None:
            trouble = self._start()
            if trouble:
                return Result(name, trouble, 0.0)
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=limit)
        except BrokenPipeError:
            answer = None
        except queue.Empty:
            self.stop()
            return Result(name, f"TimeoutError: no answer within {limit:g} s", limit)
        if answer is None:
            return Result(name, f"Crash: {self._post_mortem()}", 0.0)
        return Result(name, answer["error"], answer["seconds"], answer["wholly"])

    def _start(self) -> str:
        self.stderr = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            start_new_session=True,
        )
        self.answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=_pump, args=(self.process.stdout, self.answers), daemon=True).start()
        try:
            if self.answers.get(timeout=START_LIMIT) is None:
                return f"WorkerFailed: {self._post_mortem()}"
        except queue.Empty:
            self.stop()
            return f"WorkerFailed: not ready within {START_LIMIT:g} s"
        return ""

    def _post_mortem(self) -> str:
        assert self.process is not None
        code = self.process.wait()
        self.stderr.seek(0)
        lines = [line for line in self.stderr.read().splitlines() if line.strip()]
        self.stop()
        return f"exit code {code}: {' | '.join(lines[-3:])}"

    def finish(self) -> None:
        """Lets the process end by itself, so that it can clean up; then like `stop`."""
        if self.process is not None and self.process.stdin is not None:
            try:
                self.process.stdin.close()
                self.process.wait(10.0)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                pass
        self.stop()

    def stop(self) -> None:
        """Ends the process and its children."""
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
        self.process = None


def _pump(stream: Any, answers: queue.Queue[dict[str, Any] | None]) -> None:
    try:
        for line in stream:
            answers.put(json.loads(line))
    except ValueError:
        pass  # the pipe closed during a line
    answers.put(None)


class Pool:
    """Workers for several calls of `run`; a context manager that ends them."""

    def __init__(self, where: str, provider: str, jobs: int = 2, limit: float = 20.0) -> None:
        self.workers = [Worker(where, provider) for _ in range(jobs)]
        self.limit = limit

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.finish()

    def run(self, names: Iterable[str], on_result: Callable[[Result], None] | None = None) -> list[Result]:
        """Results in the order of `names`; each free worker takes the next name."""
        order = list(names)
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in order:
            waiting.put(name)
        results: dict[str, Result] = {}

        def work(worker: Worker) -> None:
            while True:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    return
                results[name] = worker.run(name, self.limit)
                if on_result:
                    on_result(results[name])

        threads = [threading.Thread(target=work, args=(worker,)) for worker in self.workers[: len(order)]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[name] for name in order]

"""A server for first visits: files compressed by brotli beforehand, and a limited bandwidth for all connections
together."""

from __future__ import annotations

import hashlib
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from bench.chromium import BUILD, ROOT
from pyruntime.cli import serve

PORTION = 16384  # bytes that a connection sends before others take their turn


def compressed(files: Iterable[Path]) -> dict[Path, Path]:
    """Caches each file's brotli (quality 11) by its content."""
    folder = BUILD / "brotli"
    folder.mkdir(parents=True, exist_ok=True)
    found = {file.resolve(): folder / hashlib.sha256(file.read_bytes()).hexdigest()[:32] for file in files}
    missing = [str(path) for pair in found.items() if not pair[1].exists() for path in pair]
    if missing:
        subprocess.run(["node", "bench/compress.mjs", *missing], cwd=ROOT, check=True)
    return found


class Line:
    """The bandwidth that all connections share. bits: per second; None: no limit."""

    def __init__(self) -> None:
        self.bits: float | None = None
        self.free = 0.0
        self.lock = threading.Lock()

    def wait(self, count: int) -> None:
        """Wait until `count` bytes have passed."""
        if self.bits is None:
            return
        with self.lock:
            self.free = max(self.free, time.monotonic()) + 8 * count / self.bits
            free = self.free
        time.sleep(max(0.0, free - time.monotonic()))


class Handler(serve.Handler):
    """Serves like `pyruntime serve`, over a limited line, and sends compressed files if they exist."""

    server: Server

    def translate_path(self, path: str) -> str:
        self.whole = super().translate_path(path)
        self.brotli = self.server.brotli.get(Path(self.whole))
        return str(self.brotli or self.whole)

    def guess_type(self, path: Any) -> str:
        return super().guess_type(self.whole)

    def end_headers(self) -> None:
        if self.brotli:
            self.send_header("Content-Encoding", "br")
        super().end_headers()

    def copyfile(self, source: IO[bytes], outputfile: IO[bytes]) -> None:  # type: ignore[override]
        while data := source.read(PORTION):
            self.server.line.wait(len(data))
            outputfile.write(data)
            self.server.sent[self.whole] += len(data)


class Server(serve.Server):
    """sent: bytes by file"""

    handler = Handler

    def __init__(self, mounts: dict[str, Path], brotli: dict[Path, Path]) -> None:
        super().__init__(mounts)
        self.brotli = brotli
        self.line = Line()
        self.sent: Counter[str] = Counter()

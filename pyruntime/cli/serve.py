"""`pyruntime serve [FOLDER]`: a static server for pages that use pyruntime.

It sends the right content types (.mjs, .wasm, .onnx), compresses, and makes pages cross-origin isolated, so that they
get shared memory and threads. `--no-isolation` omits the headers for isolation, as most servers do. With `--model` it
serves models to programs instead (serve_models.py)."""

from __future__ import annotations

import gzip
import http.server
import io
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import unquote, urlsplit

from pyruntime.cli.parser import Parser, between

SITE = Path("build/site")
PORTS = range(8000, 8100)
EXAMPLES = {
    "": "the demo site, after `npm run build`",
    "public --port 9000": "another folder",
    "public --mount /models=../models": "and a second folder",
    "--model NAME=PATH": "models by the Open Inference Protocol; --model x --help lists its options",
}
TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".onnx": "application/octet-stream",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".whl": "application/zip",
    ".zip": "application/zip",
}
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# File types to compress, as in scripts/list_files.mjs, which compresses at build time.
COMPRESSED = {".css", ".html", ".js", ".json", ".mjs", ".svg", ".wasm", ".webmanifest", ".zip"}
RANGE = re.compile(r"bytes=(?=.*\d)(\d{0,18})-(\d{0,18})")
SMALLEST = 1024  # bytes; smaller files are not compressed


def _encoders() -> dict[str, Callable[[bytes], bytes]]:
    """Compressors that are fast enough to run on request, the better one first: brotli if it is installed."""
    found: dict[str, Callable[[bytes], bytes]] = {}
    with suppress(ImportError):
        brotli = import_module("brotli")
        found["br"] = partial(brotli.compress, quality=5)
    return {**found, "gzip": partial(gzip.compress, compresslevel=6)}


ENCODERS = _encoders()


@lru_cache(maxsize=128)
def compressed(path: Path, modified: int, encoding: str) -> bytes:
    """A file's bytes in a content coding, memoised until the file is modified."""
    return ENCODERS[encoding](path.read_bytes())


class Part:
    """Reads the next `size` bytes of an open file, in pieces."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.left, self.close = file, size, file.close

    def read(self, most: int) -> bytes:
        data = self.file.read(min(most, self.left))
        self.left -= len(data)
        return data


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves `mounts` (folders by URL prefix; the longest prefix wins), with `headers` in every response."""

    protocol_version = "HTTP/1.1"
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map, **TYPES}

    def __init__(
        self, *args: object, mounts: Mapping[str, Path], headers: Mapping[str, str], quiet: bool, compress: bool
    ) -> None:
        self.mounts, self.headers_out, self.quiet, self.compress = mounts, headers, quiet, compress
        super().__init__(*args)  # type: ignore[arg-type]

    def translate_path(self, path: str) -> str:
        path = unquote(urlsplit(path).path)
        for prefix in sorted(self.mounts, key=len, reverse=True):
            if path.startswith(prefix):
                root = self.mounts[prefix].resolve()
                target = (root / path[len(prefix) :].lstrip("/")).resolve()
                return str(target if target.is_relative_to(root) else root / "outside")
        return "/nonexistent"

    def send_head(self) -> Any:
        """Like the base class, but sends ranges, and files in a content coding that the browser accepts."""
        try:
            path = Path(self.translate_path(self.path))
        except ValueError:  # a name that no file can have
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if path.is_dir() and urlsplit(self.path).path.endswith("/"):
            path /= "index.html"
        asked = self.asked() if path.is_file() else None
        if asked:
            return self.part(path, asked)
        encoded = self.encoded(path) if self.compress and path.is_file() else None
        if encoded is None:
            return super().send_head()
        encoding, body = encoded
        modified = self.date_time_string(int(path.stat().st_mtime))
        unchanged = self.headers.get("If-Modified-Since") == modified
        self.send_response(HTTPStatus.NOT_MODIFIED if unchanged else HTTPStatus.OK)
        if not unchanged:
            self.send_header("Content-Type", self.guess_type(str(path)))
            self.send_header("Content-Encoding", encoding)
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", modified)
        self.end_headers()
        return io.BytesIO(b"" if unchanged else body)

    def asked(self) -> re.Match[str] | None:
        """The range that a GET request asks for, if it is valid and unconditional."""
        if self.command != "GET" or "If-Range" in self.headers:
            return None
        found = RANGE.fullmatch(self.headers.get("Range", ""))
        return None if found and all(found.groups()) and int(found[1]) > int(found[2]) else found

    def part(self, path: Path, asked: re.Match[str]) -> Part:
        """Sends the headers of a response with a range of bytes: from a first to a last, or the last N."""
        size = path.stat().st_size
        first = int(asked[1]) if asked[1] else max(size - int(asked[2]), 0)
        last = min(int(asked[2]), size - 1) if asked[1] and asked[2] else size - 1
        there = first <= last
        self.send_response(HTTPStatus.PARTIAL_CONTENT if there else HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}" if there else f"bytes */{size}")
        self.send_header("Content-Length", str(max(last - first + 1, 0)))
        self.send_header("Last-Modified", self.date_time_string(int(path.stat().st_mtime)))
        self.end_headers()
        file = path.open("rb")
        file.seek(first)
        return Part(file, max(last - first + 1, 0))

    def encoded(self, path: Path) -> tuple[str, bytes] | None:
        """The content coding and the bytes to send: from a compressed file in the same folder, or by `compressed`."""
        asked = [name.replace(" ", "").partition(";") for name in self.headers.get("Accept-Encoding", "").split(",")]
        taken = {name for name, _, weight in asked if weight not in ("q=0", "q=0.0")}
        for encoding, ending in (("br", ".br"), ("gzip", ".gz")):
            beside = path.with_name(path.name + ending)
            if encoding in taken and beside.is_file() and beside.stat().st_mtime >= path.stat().st_mtime:
                return encoding, beside.read_bytes()
        encoding = next((name for name in ENCODERS if name in taken), "")
        if not encoding or path.suffix not in COMPRESSED or path.stat().st_size < SMALLEST:
            return None
        return encoding, compressed(path, path.stat().st_mtime_ns, encoding)

    def end_headers(self) -> None:
        for name, value in self.headers_out.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-cache")
        if self.compress:
            self.send_header("Vary", "Accept-Encoding")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        if not self.quiet:
            super().log_message(format, *args)


class Server(http.server.ThreadingHTTPServer):
    """A server on a thread: `with Server({"/": folder}) as server: server.url`."""

    daemon_threads = True
    handler = Handler

    def __init__(
        self,
        mounts: Mapping[str, Path],
        *,
        isolated: bool = True,
        headers: Mapping[str, str] | None = None,
        port: int = 0,
        quiet: bool = True,
        compress: bool = False,
    ) -> None:
        out = {**(ISOLATION if isolated else {}), **(headers or {})}
        self.connections: set[socket.socket] = set()
        super().__init__(
            ("127.0.0.1", port), partial(self.handler, mounts=mounts, headers=out, quiet=quiet, compress=compress)
        )
        self.url = f"http://localhost:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores connections that the browser closes in the middle of a file."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes all connections, because browsers keep them open."""
        self.shutdown()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


def listening(mounts: Mapping[str, Path], port: int | None, **options: Any) -> Server:
    """A server on the port; without one, on the first of PORTS that is free."""
    for candidate in PORTS if port is None else ():
        with suppress(OSError):
            return Server(mounts, port=candidate, **options)
    return Server(mounts, port=port or 0, **options)


def main(argv: list[str] | None = None) -> int:
    if any(one.startswith("--model") for one in argv or ()):
        return int(import_module("pyruntime.cli.serve_models").main(argv))
    parser = Parser("serve", "Serve pages that use pyruntime.", EXAMPLES)
    parser.add_argument("folder", nargs="?", type=Path, default=SITE, help=f"folder to serve (default {SITE})")
    parser.add_argument("--port", type=between(int, 0, 65535), help=f"default: {PORTS[0]}, or the next that is free")
    parser.add_argument("--no-isolation", action="store_true", help="do not send the headers that allow shared memory")
    parser.add_argument(
        "--mount", action="append", default=[], metavar="/PREFIX=FOLDER", help="also serve FOLDER at /PREFIX"
    )
    args = parser.parse_args(argv)
    if not args.folder.is_dir():
        parser.error(f"{args.folder} does not exist (`npm run build` makes {SITE})")
    mounts = {"/": args.folder}
    for mount in args.mount:
        prefix, _, folder = mount.partition("=")
        mounts[prefix.rstrip("/") + "/"] = Path(folder)
        if not prefix.startswith("/") or not Path(folder).is_dir():
            parser.error(f"--mount {mount}: {folder or 'it'} is not a folder (/PREFIX=FOLDER)")
    try:
        server = listening(mounts, args.port, isolated=not args.no_isolation, quiet=False, compress=True)
    except OSError as error:
        parser.error(f"port {args.port}: {error.strerror}")
    print(
        f"{args.folder} at {server.url}/ ({'not ' if args.no_isolation else ''}isolated); stop with Ctrl-C", flush=True
    )
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    return 0

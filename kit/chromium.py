"""Headless Chromium with the built package, for browser tests, conformance, demo and bench.

`Engine` gives a page onnxruntime's Python API: `engine.open(model).run(None, feeds)`, with NumPy arrays. All calls go
through the package's public JavaScript API (kit/pages/bridge.js). Element types that this API lacks (bfloat16, float8,
two-bit integers …) cross as raw bits of another type, sequences as arrays of tensors, an empty optional as null; this
module converts them back by the types that the model declares.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from pyruntime import testing
from pyruntime.cli.serve import Server
from pyruntime.ir import dtype as dt
from pyruntime.native.memory.arrays import NUMPY, dtype_of, from_storage, to_storage

ROOT = Path(__file__).resolve().parent.parent
MORE_ARGS = ["--no-sandbox", "--js-flags=--expose-gc"]
ARGS = [*testing.FLAGS, *MORE_ARGS]
MOUNTS = {
    "/": ROOT / "e2e" / "pages",
    "/bridge/": ROOT / "kit" / "pages",
    "/built/": ROOT / "build" / "pages",
    "/demo/": ROOT / "demo",
    "/dist/": ROOT / "dist",
    "/light/": Path(onnx.__file__).parent / "backend" / "test" / "data" / "light",
    "/models/": ROOT / "build" / "models",
    "/onnxruntime-common/": ROOT / "node_modules" / "onnxruntime-common" / "dist" / "esm",
    "/onnxruntime-web/": ROOT / "node_modules" / "onnxruntime-web" / "dist",
    "/program-models/": ROOT / "build" / "program-models",
    "/programs/": ROOT / "build" / "programs" / "npm",
    "/site/": ROOT / "build" / "site",
    "/vad/": ROOT / "node_modules" / "@ricky0123" / "vad-web" / "dist",
    "/web/": ROOT / "web",
    "/zoo/": ROOT / "build" / "zoo",
}
# element types without a name in onnxruntime's API -> the type that carries their bits
CARRIERS = {"bfloat16": "uint16", "int2": "int8", "uint2": "uint8"}
CARRIERS |= {kind.name: "uint8" for kind in dt.ALL if kind.is_float and kind.size == 1}


def build() -> None:
    """Builds dist/ and build/site/ from the working tree."""
    subprocess.run(["node", "scripts/build_web.mjs"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def chromium_path() -> str | None:
    """The Chromium that scripts/setup.sh found, else one on PATH; None for Playwright's own."""
    noted = ROOT / "build" / "chromium"
    if noted.exists():
        return noted.read_text().strip() or None
    return next((p for p in map(shutil.which, ("chromium", "google-chrome", "chrome")) if p), None)


def launch_options() -> dict[str, Any]:
    """Of `pyruntime.testing.launch`."""
    return {"executable_path": chromium_path(), "args": MORE_ARGS}


def launch() -> AbstractContextManager[Browser]:
    """A browser; each of its contexts is a new profile with an empty cache."""
    return testing.launch(**launch_options())


@contextmanager
def launch_profile() -> Iterator[BrowserContext]:
    """A browser with one profile on disk, like a user's."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        chromium = playwright.chromium.launch_persistent_context(folder, executable_path=chromium_path(), args=ARGS)
        try:
            yield chromium
        finally:
            chromium.close()


def url_of(path: Path) -> str:
    """The URL path of a file on the test server."""
    for prefix, folder in MOUNTS.items():
        if prefix != "/" and path.is_relative_to(folder):
            return prefix + path.relative_to(folder).as_posix()
    raise ValueError(f"{path} is not served")


class BrowserError(Exception):
    """An error in the page; kind: the name of its JavaScript class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Engine:
    """The package in a page. limit: seconds that an answer may take, after which the worker ends and the next call
    starts another. Errors: BrowserError, TimeoutError."""

    def __init__(self, page: Page, origin: str, limit: float = 600.0) -> None:
        self.page, self.limit = page, limit
        page.goto(f"{origin}/bridge/bridge.html")
        page.wait_for_function("globalThis.bridge")

    def call(self, name: str, *args: Any) -> Any:
        answer = self.page.evaluate("([name, args, limit]) => bridge.call(name, args, limit)", [name, args, self.limit])
        if "error" not in answer:
            return answer["result"]
        if answer["error"]["type"] == "TimeoutError":
            raise TimeoutError(answer["error"]["message"])
        raise BrowserError(answer["error"]["type"], answer["error"]["message"])

    def open(self, model: Path | bytes, **options: Any) -> Session:
        """A session of a served file or of bytes; options: onnxruntime-web's session options."""
        source = {"url": url_of(model)} if isinstance(model, Path) else {"base64": base64.b64encode(model).decode()}
        return Session(self, self.call("open", source, options))

    def python(self, code: str) -> Any:
        """Runs Python code in the worker. Returns the value of its last expression."""
        return self.call("python", code, None)

    def boot(self) -> float:
        """Starts the worker and the engine. Returns the milliseconds it took."""
        return self.call("boot")


class Session:
    """A session in the page, with onnxruntime's `run`. timings: milliseconds, of creation and of each run."""

    def __init__(self, engine: Engine, opened: dict[str, Any]) -> None:
        self.engine, self.number = engine, opened["number"]
        self.names = opened["outputs"]
        self.dtypes: dict[str, str | None] = opened["dtypes"]
        self.timings: dict[str, float] = opened["timings"]
        self.runs: list[float] = []

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        names = self.names if names is None else list(names)
        answer = self.engine.call("run", self.number, to_feeds(feeds), names)
        self.runs.append(answer["milliseconds"])
        return [from_json(value, self.dtypes[name]) for name, value in zip(names, answer["values"], strict=True)]

    def repeat(self, feeds: Mapping[str, Any], count: int) -> list[float]:
        """The milliseconds of each of `count` runs, whose results stay in the page."""
        return self.engine.call("repeat", self.number, to_feeds(feeds), count)

    def explain(self) -> dict[str, Any]:
        return self.engine.call("explain", self.number)

    def metrics(self) -> dict[str, Any]:
        return self.engine.call("metrics", self.number)

    def memory(self) -> dict[str, Any]:
        return self.engine.call("memory", self.number)

    def release(self) -> None:
        self.engine.call("release", self.number)


def to_feeds(feeds: Mapping[str, Any]) -> dict[str, Any]:
    return {name: to_json(value) for name, value in feeds.items()}


def to_json(value: Any) -> Any:
    """A feed for bridge.js: its type, dims and bytes in the engine's storage layout."""
    if value is None or isinstance(value, list | tuple):
        return value and [to_json(item) for item in value]
    array = np.asarray(value)
    kind, data = dtype_of(array), to_storage(array)
    if kind is dt.STRING:
        return {"type": "string", "dims": array.shape, "strings": data.ravel().tolist()}
    if kind in (dt.I4, dt.U4):
        data = _packed(data.view(np.uint8).ravel())
    return {
        "type": CARRIERS.get(kind.name, kind.name),
        "dims": array.shape,
        "base64": base64.b64encode(data.tobytes()).decode(),
    }


def from_json(value: Any, declared: str | None) -> Any:
    """An output; declared: the model's element type, by which raw bits are converted."""
    if value is None or isinstance(value, list):
        return value and [from_json(item, declared) for item in value]
    shape = tuple(value["dims"])
    if value["type"] == "string":
        return np.array(value["strings"], object).reshape(shape)
    raw = CARRIERS.get(declared or "") == value["type"]
    kind = dt.BY_NAME[declared if declared and raw else value["type"]]
    data = base64.b64decode(value["base64"])
    if kind in (dt.I4, dt.U4):
        data = _unpacked(data, int(np.prod(shape)), kind is dt.I4)
    return from_storage(np.frombuffer(data, NUMPY[kind.name]).reshape(shape), kind)


def _packed(codes: np.ndarray) -> np.ndarray:
    """Two four-bit elements a byte, the low one first."""
    even = np.append(codes, np.zeros(len(codes) % 2, np.uint8)) & 15
    return even[::2] | even[1::2] << 4


def _unpacked(data: bytes, count: int, signed: bool) -> bytes:
    pairs = np.frombuffer(data, np.uint8)
    codes = np.stack([pairs & 15, pairs >> 4], 1).ravel()[:count]
    return ((codes ^ 8) - 8 if signed else codes).astype(np.uint8).tobytes()


def serve(*, isolated: bool = True, headers: Mapping[str, str] | None = None) -> AbstractContextManager[Server]:
    return testing.serve(MOUNTS, isolated=isolated, headers=headers)

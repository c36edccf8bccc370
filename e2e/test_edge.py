"""Models as WebAssembly modules (`pyruntime export --module`), where code cannot be compiled from bytes: in workerd,
the runtime of Cloudflare Workers, and with the same file in Node.js and Deno."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from kit import small_models
from kit.chromium import ROOT
from pyruntime import InferenceSession
from pyruntime.errors import InvalidInput
from pyruntime.native.tools.wasm_module import as_module

RUNTIMES = ROOT / "build/runtimes/node_modules/.bin"
EMPTY = b"\0asm\1\0\0\0"
RNG = np.random.default_rng(0)
CASES: list[tuple[str, dict[str, np.ndarray]]] = [
    ("affine", {"x": RNG.standard_normal((2, 4), np.float32)}),
    ("affine", {"x": RNG.standard_normal((5, 4), np.float32)}),
    ("affine", {"x": np.zeros((0, 4), np.float32)}),
    ("external", {"x": RNG.standard_normal((3, 4), np.float32)}),
    ("types", {"i": np.array([2**40, -3, 7]), "p": np.array([True, False])}),
    ("joined", {"a": np.ones(3, np.float32), "b": np.array([np.nan, np.inf, -0.0], np.float32)}),
    ("digits", {"image": RNG.random((2, 1, 28, 28), np.float32)}),
]
REFUSED = [
    'InvalidInput: input "x"', 'InvalidInput: input "x" is missing', 'InvalidInput: there is no output "z"',
    "InvalidInput: a WebAssembly.Module is expected", "InvalidModel: this module holds no model",
    "SessionFailed: this session is released",
]  # fmt: skip
CONFIG = """using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (compatibilityDate = "2026-01-01", modules = [
    MODULES
  ]))],
  sockets = [(name = "http", address = "127.0.0.1:PORT", http = (), service = "main")]
);
"""


@pytest.fixture(scope="module")
def folder(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules, the package's file that runs them, and the cases."""
    into = tmp_path_factory.mktemp("edge")
    small_models.write(into)
    shutil.copy(ROOT / "demo/digits/digits.onnx", into)
    names = sorted({name for name, _ in CASES})
    for name in names:
        arguments = ["export", f"{name}.onnx", f"{name}.wasm", "--module"]
        subprocess.run([sys.executable, "-m", "pyruntime.cli", *arguments], cwd=into, check=True, capture_output=True)
    (into / "empty.wasm").write_bytes(EMPTY)
    for file in (*(ROOT / "e2e/edge").iterdir(), ROOT / "dist/module.mjs"):
        shutil.copy(file, into)
    cases = [[n, {k: [x.dtype.name, x.shape, x.ravel().tolist()] for k, x in feeds.items()}] for n, feeds in CASES]
    text = (
        json.dumps({"names": [*names, "empty"], "cases": cases})
        .replace("NaN", '"NaN"')
        .replace("Infinity", '"Infinity"')
    )
    (into / "cases.json").write_text(text)
    return into


def check(found: Any, folder: Path) -> None:
    for (name, feeds), ours in zip(CASES, found["outputs"], strict=True):
        theirs = onnxruntime.InferenceSession(folder / f"{name}.onnx").run(None, feeds)
        for (kind, dims, data), want in zip(ours, theirs, strict=True):
            assert (kind, dims) == (want.dtype.name, [*want.shape]), name
            flat = np.array([np.nan if v is None else v for v in data], float)
            is_exact = np.isfinite(want.ravel())  # JSON has no other numbers
            np.testing.assert_allclose(flat[is_exact], want.ravel()[is_exact], rtol=1e-4, atol=1e-5, err_msg=name)
    dims = [{"name": "x", "isTensor": True, "type": "float32", "shape": ["batch", 4]}]
    assert found["about"][:3] == [["x"], ["y"], dims]
    for ours, start in zip(found["refused"], REFUSED, strict=True):
        assert ours.startswith(start), (ours, start)


@pytest.mark.parametrize("place", ["node", "deno"])
def test_from_files(place: str, folder: Path) -> None:
    command = {"node": ["node"], "deno": [str(RUNTIMES / "deno"), "run", "--quiet", "--allow-all"]}[place]
    if not shutil.which(command[0]):
        pytest.skip(f"{place} is not installed (scripts/setup.sh runtimes)")
    done = subprocess.run([*command, "program.mjs"], cwd=folder, check=True, capture_output=True, text=True, timeout=60)
    check(json.loads(done.stdout), folder)


@contextmanager
def served(folder: Path, main: str, modules: dict[str, str]) -> Iterator[str]:
    """The address of a worker in workerd. main: its module; modules: the files of others, by the name of the import"""
    if not (RUNTIMES / "workerd").exists():
        pytest.skip("workerd is not installed (scripts/setup.sh runtimes)")
    kinds = {".wasm": "wasm", ".js": "esModule", ".mjs": "esModule"}
    named = {main: main, **modules}
    parts = [f'(name = "{name}", {kinds[Path(file).suffix]} = embed "{file}")' for name, file in named.items()]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "config.capnp").write_text(CONFIG.replace("MODULES", ",\n    ".join(parts)).replace("PORT", str(port)))
    process = subprocess.Popen([str(RUNTIMES / "workerd"), "serve", "config.capnp"], cwd=folder)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_in_workerd(folder: Path) -> None:
    """It instantiates modules that it imports, and refuses to compile bytes."""
    given = json.loads((folder / "cases.json").read_text())
    names = given["names"]
    imports = "".join(f"import {name} from './{name}.wasm';\n" for name in names)
    (folder / "worker.js").write_text(
        f"{imports}import {{ found }} from './cases.mjs';\nconst modules = {{ {', '.join(names)} }};\n"
        "export default { fetch: async (request) => Response.json(await found(modules, await request.json())) };\n"
    )
    files = ["cases.mjs", "module.mjs", *(f"{name}.wasm" for name in names)]
    with served(folder, "worker.js", dict(zip(files, files, strict=True))) as address:
        check(json.loads(answer(address, json.dumps(given["cases"]).encode())), folder)


def test_the_example_of_the_documentation(folder: Path) -> None:
    image = RNG.random((1, 1, 28, 28), np.float32)
    (want,) = onnxruntime.InferenceSession(folder / "digits.onnx").run(None, {"image": image})
    modules = {"digits.wasm": "digits.wasm", "pyruntime/module": "module.mjs"}
    with served(folder, "digits.js", modules) as address:
        found = json.loads(answer(address, image.tobytes()))
    np.testing.assert_allclose(found, want[0], rtol=1e-4, atol=1e-5)


def answer(address: str, body: bytes) -> bytes:
    """Once the server listens."""
    request = urllib.request.Request(address, body, method="POST")
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                found: bytes = response.read()
                return found
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > end:
                raise
            time.sleep(0.1)


def test_what_a_module_cannot_hold(folder: Path) -> None:
    for how in ({"providers": ["webgpu", "wasm"]}, {"weights": False}):
        data = InferenceSession(folder / "digits.onnx").export(**{"weights": True, **how})
        with pytest.raises(InvalidInput, match="a module has its weights"):
            as_module(data)


def test_lengths_of_sections() -> None:
    """At the borders of LEB128 numbers."""
    from pyruntime.native.tools.wasm_module import _number

    assert [_number(n).hex() for n in (0, 127, 128, 16383, 16384)] == ["00", "7f", "8001", "ff7f", "808001"]

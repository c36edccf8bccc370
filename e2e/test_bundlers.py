"""A bundler's project that imports the package: the built site and the development server, with threads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from pyruntime.cli.serve import Server

ROOT = Path(__file__).parents[1]
VITE = ROOT / "node_modules/vite/bin/vite.js"
FILES = {
    "index.html": '<!doctype html><link rel="icon" href="data:,"><script type="module" src="./main.js"></script>',
    "main.js": """
import * as ort from 'pyruntime';
globalThis.go = async () => {
  const session = await ort.InferenceSession.create('/add.onnx', { intraOpNumThreads: 2 });
  const tensor = new ort.Tensor('float32', Float32Array.of(1, 2, 3, 4, 5, 6), [2, 3]);
  const { c } = await session.run({ a: tensor, b: tensor });
  const options = { executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer' };
  const { d } = await (await ort.InferenceSession.create('/add.onnx', options)).run({ a: tensor, b: tensor });
  return [...c.data, (await ort.stats()).threads, d.location, ...(await d.getData())];
};
""",
    "vite.config.js": """
const headers = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
export default { server: { headers }, preview: { headers }, logLevel: 'warn' };
""",
    "package.json": '{ "type": "module" }',
}

RESULT = [2, 4, 6, 8, 10, 12, 1, "gpu-buffer", *[0] * 6]


@pytest.fixture(scope="module")
def project(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vite")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "public").mkdir()
    shutil.copy(ROOT / "build/models/add.onnx", folder / "public")
    for package in ("onnxruntime-common", "vite", "webpack"):
        (folder / "node_modules").mkdir(exist_ok=True)
        (folder / "node_modules" / package).symlink_to(ROOT / "node_modules" / package)
    installed = folder / "node_modules/pyruntime"
    shutil.copytree(ROOT / "dist", installed / "dist")
    shutil.copy(ROOT / "package.json", installed)
    return folder


@contextmanager
def vite(project: Path, *command: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ["--host", "127.0.0.1", "--port", str(port), "--strictPort"]
    server = subprocess.Popen(["node", str(VITE), *command, *where], cwd=project, start_new_session=True)
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.mark.parametrize("command", ["dev", "preview"])
def test_vite(command: str, project: Path, browser: Browser) -> None:
    if command == "preview":
        subprocess.run(["node", str(VITE), "build"], cwd=project, check=True)
    with vite(project, command) as address:
        page = browser.new_page()
        try:
            page.goto(address)
            page.wait_for_function("globalThis.go !== undefined")
            assert page.evaluate("go()") == RESULT
        finally:
            page.close()


WEBPACK = """
const webpack = require('webpack');
const how = { mode: 'production', optimization: { minimize: false }, performance: false, entry: './main.cjs' };
webpack({ ...how, output: { path: `${__dirname}/packed` } }, (error, stats) => {
  if (!error && !stats.hasErrors() && !stats.hasWarnings()) return;
  console.error(error ?? stats.toString());
  process.exit(1);
});
"""


def test_webpack(project: Path, browser: Browser) -> None:
    """A program that has the package by require()."""
    (project / "main.cjs").write_text(
        FILES["main.js"].replace("import * as ort from 'pyruntime'", "const ort = require('pyruntime')")
    )
    (project / "webpack.cjs").write_text(WEBPACK)
    subprocess.run(["node", "webpack.cjs"], cwd=project, check=True)
    packed = project / "packed"
    (packed / "index.html").write_text(
        FILES["index.html"].replace('type="module" src="./main.js"', 'src="./main.js" defer')
    )
    shutil.copy(ROOT / "build/models/add.onnx", packed)
    with Server({"/": packed}) as server:
        page = browser.new_page()
        try:
            page.goto(f"{server.url}/index.html")
            assert page.evaluate("go()") == RESULT
        finally:
            page.close()


# ── types ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TYPED = {
    "module.mts": """
import ort, { InferenceSession, Tensor, boot, env, type Progress } from 'pyruntime';
import * as all from 'pyruntime/wasm';
const onProgress = ({ loaded }: Progress): void => void loaded;
const options = { executionProviders: ['wasm'], onProgress };
export const session: Promise<InferenceSession> = InferenceSession.create('x', options);
export const tensor: Tensor = new ort.Tensor('float32', [1], [1]);
env.wasm.numThreads = 1;
export const rest = [boot, all.default.env];
""",
    "required.cts": """
import ort = require('pyruntime');
export const tensor: ort.Tensor = new ort.Tensor('float32', [1], [1]);
export const session: Promise<ort.InferenceSession> = ort.InferenceSession.create('x');
""",
}
RESOLUTIONS = {"nodenext": ("nodenext", ["module.mts", "required.cts"]), "bundler": ("esnext", ["module.mts"])}


@pytest.mark.parametrize("resolution", RESOLUTIONS)
@pytest.mark.parametrize("compiler", ["typescript", "typescript-5"])
def test_the_types_compile(project: Path, compiler: str, resolution: str) -> None:
    """In a strict project that checks its libraries' declarations, too."""
    module, files = RESOLUTIONS[resolution]
    for name, text in TYPED.items():
        (project / name).write_text(text)
    options = {
        "strict": True, "noEmit": True, "skipLibCheck": False, "module": module, "moduleResolution": resolution,
        "target": "es2022", "lib": ["es2022", "dom", "dom.iterable"], "types": [], "preserveSymlinks": True,
    }  # fmt: skip
    config = project / f"tsconfig.{resolution}.json"
    config.write_text(json.dumps({"compilerOptions": options, "files": files}))
    command = ["node", ROOT / "node_modules" / compiler / "bin/tsc", "-p", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout

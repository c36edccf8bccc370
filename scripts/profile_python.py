"""Profiles which functions of Pyodide's WebAssembly are used, and which most. Writes scripts/python_used.txt, by which
the build splits the WebAssembly, and scripts/python_hot.txt, the functions that pages warm up.

    python -m scripts.profile_python        in Chromium: starts, sessions of real and of small models, of those that
                                            `make serve` fetches for the demo site, of all networks of kit/field and of
                                            the official suite's operators, errors

If the first list lacks a function, a page downloads the second half when it first calls the function: a tenth of a
second and 1.7 MB. The hot functions are those of whole models.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from kit import field, small_models
from kit.chromium import MOUNTS, ROOT, BrowserError, Engine, build, launch
from kit.conformance.cases import load
from kit.models import MODELS, silero_path
from pyruntime.cli.serve import Server
from pyruntime.ops import rare
from scripts.split_wasm import Splitter, ranges

WASM = ROOT / "node_modules" / "pyodide" / "pyodide.asm.wasm"
USED, HOT = (ROOT / "scripts" / f"python_{name}.txt" for name in ("used", "hot"))
FOLDER = ROOT / "build" / "profiled"
NAMES = """digits mobilenet_v2 mobilenet_v2.qdq minilm.dyn gpt2_tiny llama_mini.nb4 llama_mini.qdq lstm_tagger yolo_nms
 unet_resize vit_tiny whisper_tiny_decoder superres wav2vec2_mini""".split()
ON_GPU = ("digits", "gpt2_tiny", "lstm_tagger")
PREAMBLE = """{
  const { instantiate, instantiateStreaming } = WebAssembly;
  let counts = [];
  const watched = (instance) => {
    const mine = ([name]) => name.startsWith('called ');
    const all = Object.entries(instance.exports);
    if (!all.some(mine)) return instance;
    counts = all.filter(mine);
    return { exports: Object.fromEntries(all.filter((entry) => !mine(entry))) };
  };
  WebAssembly.instantiate = async (given, imports) => { // what the page has compiled
    const made = await instantiate(given, imports);
    return given instanceof WebAssembly.Module ? watched(made) : made;
  };
  WebAssembly.instantiateStreaming = async (source, imports) => {
    const { instance, module } = await instantiateStreaming(source, imports);
    return { module, instance: watched(instance) };
  };
  const channel = new BroadcastChannel('profile');
  const called = () => counts.filter(([, { value }]) => value)
    .map(([name, { value }]) => [Number(name.slice(7)), value >>> 0]);
  channel.onmessage = () => channel.postMessage(called());
}
"""
IMAGE = f"""import {{ snapshot }} from './scripts/snapshot.mjs';
import {{ readFileSync, writeFileSync }} from 'node:fs';
const code = new Uint8Array(readFileSync('{ROOT}/build/web/restore.wasm'));
const made = await snapshot('{FOLDER}', '{WASM.parent}', '{ROOT}/build/web/pyodide.trimmed.mjs', '%s', code);
writeFileSync('{FOLDER}/python.image.wasm', made);
"""
ASK = """() => new Promise((resolve) => {
  const channel = new BroadcastChannel('profile');
  channel.onmessage = ({ data }) => resolve(data);
  channel.postMessage(0);
})"""


def prepare() -> None:
    """A copy of dist/ whose interpreter counts calls. It has another image, because all data are in one file."""
    build()
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(ROOT / "dist", FOLDER)
    shutil.copy(WASM, FOLDER)
    worker = FOLDER / "worker.mjs"
    (name,) = re.findall('"([0-9a-f]{16})"', worker.read_text())
    subprocess.run(["node", "--input-type=module", "-e", IMAGE % name], cwd=ROOT, check=True)
    (FOLDER / "pyodide.asm.wasm").write_bytes(Splitter(WASM.read_bytes()).instrumented())
    worker.write_text(PREAMBLE + worker.read_text())
    small_models.write(ROOT / "build" / "models")


def use(engine: Engine) -> None:
    for path in [*(MODELS[name].path() for name in NAMES), silero_path(), *sorted(Path("build/models").glob("*.onnx"))]:
        attempt(engine, path)
    for path in sorted((ROOT / "build/site-models").rglob("*.onnx")):
        engine.open(path.read_bytes()).release()
    for name in ON_GPU:
        attempt(engine, MODELS[name].path(), executionProviders=["webgpu"])
    for name in field.names():
        attempt(engine, field.materialize(name, small=True).read_bytes())
    engine.python("sorted([3, 1, 2])")


def use_operators(engine: Engine) -> None:
    """Open models of all forms of operators but the rare ones, whose modules are fetched anyway."""
    for case in load().values():
        if case.category == "node" and ("", case.op) not in rare.MODULES:
            attempt(engine, case.model)


def attempt(engine: Engine, path: Path | bytes, **options: Any) -> None:
    """Creates a session, inspects and releases it; some models exist to be refused."""
    try:
        session = engine.open(path.resolve() if isinstance(path, Path) else path, **options)
    except (BrowserError, TimeoutError) as error:
        print(path if isinstance(path, Path) else "", error)
        return
    model = next((m for m in MODELS.values() if m.path() == path), None)
    if model:
        session.run(None, model.feeds())
        session.explain()
        session.memory()
    session.release()


def main() -> None:
    prepare()
    found: Counter[int] = Counter()
    used: set[int] = set()
    splitter = Splitter(WASM.read_bytes())
    with launch() as browser:
        for isolated in (True, False):
            with Server({**MOUNTS, "/dist/": FOLDER}, isolated=isolated) as server:
                context = browser.new_context()
                page = context.new_page()
                engine = Engine(page, server.url)
                use(engine)
                found.update(dict(page.evaluate(ASK)))
                HOT.write_text(" ".join(map(str, splitter.hottest(found))) + "\n")
                if isolated:
                    use_operators(engine)
                used.update(number for number, _ in page.evaluate(ASK))
                print(f"{len(found)} functions, {len(used)} with operators", flush=True)
                USED.write_text(ranges(used) + "\n")
                context.close()


if __name__ == "__main__":
    main()

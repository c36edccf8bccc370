"""The package's types, in a strict project that has it installed. (Bundlers: e2e/test_examples.py.)"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    installed = folder / "node_modules/pyruntime"
    shutil.copytree(ROOT / "dist", installed / "dist")
    shutil.copy(ROOT / "package.json", installed)
    (folder / "node_modules/onnxruntime-common").symlink_to(ROOT / "node_modules/onnxruntime-common")
    return folder


TYPED = {
    "module.mts": """
import ort, { InferenceSession, Tensor, boot, env, type Progress } from 'pyruntime';
import * as all from 'pyruntime/wasm';
import * as jspi from 'pyruntime/jspi';
import 'pyruntime/service-worker';
const onProgress = ({ loaded }: Progress): void => void loaded;
const options = { executionProviders: ['wasm'], onProgress };
export const session: Promise<InferenceSession> = InferenceSession.create('x', options);
export const tensor: Tensor = new ort.Tensor('float32', [1], [1]);
env.wasm.numThreads = 1;
export const rest = [boot, all.default.env, jspi.env];
""",
    "options.mts": """
import * as ort from 'pyruntime';
import { Batcher, TextGenerator } from 'pyruntime/extras';
import { install } from 'pyruntime/offline';
/** What an option may be in a project that passes its own options on: each may be undefined. */
type Names = string[] | undefined;
export async function every(x: ort.Tensor, signal?: AbortSignal, rate?: number, names?: Names): Promise<unknown> {
  const [auto, webgpu] = [{ name: 'auto', allowSoftware: true }, { name: 'webgpu', allowSoftware: undefined }] as const;
  const session = await ort.InferenceSession.create('m.onnx', {
    executionProviders: [auto, webgpu, 'wasm'], signal, memoryLimit: rate, outputs: names,
    cache: undefined, fetch: undefined,
  });
  ort.env.memoryLimit = undefined;
  ort.env.gpuMemoryLimit = undefined;
  await session.run({ x }, { signal, adapters: names });
  await session.run({ x }, ['y'], { signal });
  await session.memory({ feeds: undefined });
  await session.verify({ x }, { tolerance: rate });
  await session.export({ providers: undefined, assume: names });
  const trained = await ort.TrainingSession.create('m.onnx', {
    loss: { crossEntropy: 'y', smoothing: rate }, lora: { rank: rate, targets: names }, stepOutputs: ['y'],
    clip: { norm: rate }, seed: rate,
  });
  const { loss }: { loss: number } = await trained.step({ x }, { rate, signal });
  await trained.evaluate({ x }, ['y'], { signal });
  const found: ort.Tensor | undefined = trained.stepOutputs.y;
  const batcher = new Batcher(session, { size: rate, outputs: names });
  await batcher.run({ x }, { signal, adapters: 'mine' });
  await new TextGenerator(session, { tokenizer: undefined }).generate([1], { seed: rate, signal });
  await install({ scope: undefined, models: [{ url: 'm.onnx', version: undefined }] });
  return [loss, found];
}
""",
    "required.cts": """
import ort = require('pyruntime');
export const tensor: ort.Tensor = new ort.Tensor('float32', [1], [1]);
export const session: Promise<ort.InferenceSession> = ort.InferenceSession.create('x');
""",
}
RESOLUTIONS = {
    "nodenext": ("nodenext", ["module.mts", "options.mts", "required.cts"]),
    "bundler": ("esnext", ["module.mts", "options.mts"]),
}
OF_RESULTS = ("timeline", "error", "start")  # optional entries of what the package returns


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
        "noUncheckedSideEffectImports": True, "exactOptionalPropertyTypes": True, "noUncheckedIndexedAccess": True,
    }  # fmt: skip
    config = project / f"tsconfig.{resolution}.json"
    config.write_text(json.dumps({"compilerOptions": options, "files": files}))
    command = ["node", ROOT / "node_modules" / compiler / "bin/tsc", "-p", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout


def test_options_may_be_undefined() -> None:
    """Projects with `exactOptionalPropertyTypes` pass on options that they may not have."""
    for path in (ROOT / "web").glob("*.d.ts"):
        for name, kind in re.findall(r"(\w+)\?: ([^;{}()]+?)(?:;| })", path.read_text()):
            assert name in OF_RESULTS or kind.endswith(("undefined", "unknown")), f"{path.name}: {name}?: {kind}"


def test_what_onnxruntime_web_exports_is_here(built: None) -> None:
    """Under the same names; the addresses of its files are those of files that `wasmPaths` takes."""
    theirs, ours = (
        json.loads((folder / "package.json").read_text())["exports"]
        for folder in (ROOT / "node_modules/onnxruntime-web", ROOT)
    )
    assert theirs.keys() <= ours.keys()
    files = {name: ours[name] for name in theirs if name.startswith("./ort-")}
    assert {(Path(name).suffix, path) for name, path in files.items()} == {
        (".mjs", "./dist/worker.mjs"), (".wasm", "./dist/pyodide.asm.wasm"),
    }  # fmt: skip
    assert all((ROOT / path).is_file() for path in files.values())

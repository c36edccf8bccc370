"""The package's types, in a strict project that has it installed. (Bundlers: e2e/test_examples.py.)"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kit.docs import all_blocks

ROOT = Path(__file__).parents[1]
STRICT: dict[str, object] = {
    "strict": True, "noEmit": True, "skipLibCheck": False, "target": "es2022", "lib": ["es2022", "dom", "dom.iterable"],
    "types": [], "preserveSymlinks": True, "exactOptionalPropertyTypes": True, "noUncheckedIndexedAccess": True,
    "isolatedModules": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def project(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    installed = folder / "node_modules/pyruntime"
    shutil.copytree(ROOT / "dist", installed / "dist")
    shutil.copy(ROOT / "package.json", installed)
    for name in ("onnxruntime-common", "@huggingface", "@types", "undici-types"):
        (folder / "node_modules" / name).symlink_to(ROOT / "node_modules" / name)
    return folder


def compiled(compiler: str, folder: Path, files: list[str], **options: object) -> list[str]:
    """The compiler's messages. options: compiler options besides STRICT"""
    config = folder / "tsconfig.json"
    config.write_text(json.dumps({"compilerOptions": {**STRICT, **options}, "files": files}))
    command = ["node", ROOT / "node_modules" / compiler / "bin/tsc", "-p", config]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout.splitlines()


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
  const { model } = await ort.quantize('m.onnx', { bits: undefined, samples: undefined });
  new Blob([model, await session.export(), await trained.state(), await trained.adapter(), await trained.export()]);
  return [loss, found];
}
""",
    "required.cts": """
import ort = require('pyruntime');
export const tensor: ort.Tensor = new ort.Tensor('float32', [1], [1]);
export const session: Promise<ort.InferenceSession> = ort.InferenceSession.create('x');
""",
}
FILES = ["module.mts", "options.mts"]
RESOLUTIONS: dict[str, tuple[list[str], dict[str, object]]] = {
    "nodenext": ([*FILES, "required.cts"], {"module": "nodenext"}),
    "node16": ([*FILES, "required.cts"], {"module": "node16"}),
    "bundler": (FILES, {"module": "esnext", "verbatimModuleSyntax": True, "erasableSyntaxOnly": True}),
}
OF_RESULTS = ("timeline", "error", "start")  # optional entries of what the package returns


@pytest.mark.parametrize("resolution", RESOLUTIONS)
@pytest.mark.parametrize("compiler", ["typescript", "typescript-5"])
def test_the_types_compile(project: Path, compiler: str, resolution: str) -> None:
    """In a strict project that checks its libraries' declarations, too."""
    files, options = RESOLUTIONS[resolution]
    for name, text in TYPED.items():
        (project / name).write_text(text)
    options = {**options, "moduleResolution": resolution, "noUncheckedSideEffectImports": True}
    found = compiled(compiler, project, files, **options)
    assert not found, "\n".join(found)


PLATFORMS: dict[str, dict[str, object]] = {
    "workers": {"lib": ["es2022", "webworker"]},
    "Node.js": {"lib": ["es2022"], "types": ["node"]},
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_types_compile_without_the_dom(project: Path, platform: str) -> None:
    """Only onnxruntime-common's declarations need its classes."""
    (project / "module.mts").write_text(TYPED["module.mts"])
    options = {**PLATFORMS[platform], "module": "esnext", "moduleResolution": "bundler"}
    found = compiled("typescript", project, ["module.mts"], **options)
    assert [line for line in found if not line.startswith("node_modules/onnxruntime-common/")] == []


def test_the_types_do_without_newer_syntax() -> None:
    """Typed arrays got a parameter in TypeScript 5.7. (`make projects ARGS=typescript-5.0` runs an older compiler.)"""
    for path in (ROOT / "web").glob("*.d.ts"):
        declarations = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        assert not re.findall(r"\w+Array<ArrayBuffer", declarations), path.name


# What blocks of the documentation use besides the package: other packages, and classes of service workers.
PRELUDE = """
declare module 'react';
declare module 'electron';
declare module '@huggingface/transformers';
declare module '@angular/core' {
  export function Component(options: object): any;
  export function resource(options: object): any;
  export const input: { required<T>(): () => T };
}
declare module '*/digits.js';
declare module '*/Digit.jsx';
declare module '*.wasm' { const module: WebAssembly.Module; export default module }
declare namespace JSX { interface IntrinsicElements { [name: string]: any } }
declare const GPUBufferUsage: Record<string, number>;
interface MessageEvent { waitUntil(work: Promise<unknown>): void }
interface PerformanceEntry { readonly detail: any }
"""
ENDINGS = {"js": "mjs", "jsx": "jsx", "ts": "mts"}
ADDRESSES = {"dist/ort.mjs": "pyruntime", "dist/engine.sw.js": "pyruntime/service-worker"}


def test_blocks_of_the_documentation_compile(project: Path) -> None:
    """As JavaScript that an editor checks: parameters have no types, and nothing is null. The type of an output's
    numbers is known to the model alone, so they are `any`."""
    folder = project / "docs"
    folder.mkdir()
    (folder / "prelude.d.ts").write_text(PRELUDE)
    files = ["prelude.d.ts"]
    for block in all_blocks():
        if block.language in ENDINGS:
            files.append(f"{block.file.replace('/', '_')}.{block.line}.{ENDINGS[block.language]}")
            text = re.sub(r"(?<![\w)]\.)\b(\w+(?:\.\w+)*)\.data\b", r"/** @type {any} */ (\1.data)", block.text)
            for address, name in ADDRESSES.items():
                text = re.sub(f"'[./]*{address}'", f"'{name}'", text)
            (folder / files[-1]).write_text(text)
    assert len(files) > 60
    found = compiled(
        "typescript", folder, files, lib=["es2024", "dom", "dom.iterable"], types=["node"], module="esnext",
        moduleResolution="bundler", moduleDetection="force", jsx="preserve", checkJs=True, strict=False,
        strictFunctionTypes=True, strictBindCallApply=True, exactOptionalPropertyTypes=False, skipLibCheck=True,
        noUncheckedIndexedAccess=False,
    )  # fmt: skip
    assert not found, "\n".join(found)


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

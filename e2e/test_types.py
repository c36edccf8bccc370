"""The package's types, in a strict project that has it installed. (Bundlers: e2e/test_examples.py.)"""

from __future__ import annotations

import json
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
        "noUncheckedSideEffectImports": True,
    }  # fmt: skip
    config = project / f"tsconfig.{resolution}.json"
    config.write_text(json.dumps({"compilerOptions": options, "files": files}))
    command = ["node", ROOT / "node_modules" / compiler / "bin/tsc", "-p", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout


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

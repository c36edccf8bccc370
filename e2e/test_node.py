"""The packed package in Node.js, Deno and Bun: programs that have it from node_modules, and end by themselves."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from kit import small_models as models
from kit.chromium import ROOT
from pyruntime import InferenceSession

RUNTIMES = ROOT / "build/runtimes/node_modules/.bin"
COMMANDS = {
    "node": ["node", "--no-deprecation", "--throw-deprecation"],
    "bun": [str(RUNTIMES / "bun")],
    "deno": [str(RUNTIMES / "deno"), "run", "--quiet", "--allow-all", "--node-modules-dir=manual"],
}
SUM = ["2,3,4,5,6,7"]


@pytest.fixture(scope="module")
def program(built: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs, models, and the package as `npm pack` packs it."""
    folder = tmp_path_factory.mktemp("node")
    for path in (ROOT / "e2e/node").iterdir():
        shutil.copy(path, folder)
    ignored = shutil.ignore_patterns("*.pyrt", "*.[0-9]*")  # what another process of tests may be writing
    shutil.copytree(ROOT / "build/models", folder / "models", ignore=ignored)
    shutil.copy(ROOT / "demo/digits/digits.onnx", folder)
    shutil.copy(folder / "models/add.onnx", folder / "models/50% of #1?.onnx")
    shape = (TensorProto.UINT8, [3])
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    onnx.save(models.model(nodes, [("x", *shape)], [("y", *shape)]), folder / "models/bytes.onnx")
    large = folder / "models/large.onnx"  # it is read where it lies
    onnx.save(models.products(3, 2048), large)
    (folder / "large").write_bytes(large.read_bytes())
    subprocess.run(["npm", "pack", "--silent", "--pack-destination", folder], cwd=ROOT, check=True, capture_output=True)
    (folder / "models/empty.onnx").touch()
    (packed,) = folder.glob("pyruntime-*.tgz")
    shutil.unpack_archive(packed, folder / "node_modules")
    (folder / "node_modules/package").rename(folder / "node_modules/pyruntime")
    shutil.copytree(ROOT / "node_modules/onnxruntime-common", folder / "node_modules/onnxruntime-common")
    (folder / "package.json").write_text('{ "dependencies": { "pyruntime": "*" } }')
    return folder


def run(folder: Path, place: str, name: str) -> object:
    """What a program prints. It ends by itself, and has nothing to complain of."""
    if not shutil.which(COMMANDS[place][0]):
        pytest.skip(f"{place} is not installed (scripts/setup.sh runtimes)")
    done = subprocess.run([*COMMANDS[place], name], cwd=folder, check=True, capture_output=True, text=True, timeout=600)
    assert place == "deno" or not done.stderr  # its WebGPU complains of drivers
    return json.loads(done.stdout)


@pytest.mark.parametrize(("place", "name"), [*((place, "program.mjs") for place in COMMANDS), ("node", "thread.mjs")])
def test_program(program: Path, place: str, name: str) -> None:
    shutil.copy(program / "large", program / "models/large.onnx")
    found = run(program, place, name)
    assert isinstance(found, dict)
    ones = {"x": np.ones((1, 2048), np.float32)}
    np.testing.assert_allclose(found["large"][0], InferenceSession(program / "large").run(None, ones)[0][0, :4], 1e-4)
    assert found["large"][1][:2] == [True, "InvalidModel"] and "has changed since" in found["large"][1][2]
    address = (program / "models/nothing.onnx").as_uri()
    assert found["missing"][:2] == [True, "InvalidModel"] and f"cannot fetch {address}: " in found["missing"][2]
    assert found["unsupported"][:2] == [True, "UnsupportedOp"] and "Frobnicate" in found["unsupported"][2]
    assert place == "deno" or found["option"][:2] == [True, "NoAdapter"]
    assert found["python"] == "emscripten" and found["external"] == found["beside"] == ["y"] and found["threads"] == 1
    assert found["inspected"]["unsupported"] == [] and found["inspected"]["memory"]["weights"] > 0
    assert found["empty"][:2] == [True, "InvalidModel"]
    assert found["empty"][2].startswith("this is not an ONNX model: the file is empty (INVALID_PROTOBUF: ")
    assert found["bytes"] == [2 * code for code in b"abc"]
    assert [found[name] for name in ("path", "url", "file", "odd")] == [SUM] * 4
    x = (np.arange(768 * 768) % 13 / 13).astype(np.float32).reshape(768, 768)
    weight = np.random.default_rng(0).standard_normal((768, 768), np.float32)
    y = np.fromfile(program / "product.bin", np.float32).reshape(768, 768)
    np.testing.assert_allclose(y, x @ weight + x, rtol=0, atol=1e-3)


@pytest.mark.parametrize("flags", [["--input-type=module"], ["--input-type", "module"]])
def test_a_program_from_the_command_line(program: Path, flags: list[str]) -> None:
    code = """import * as ort from 'pyruntime';
      const session = await ort.InferenceSession.create('./models/add.onnx');
      console.log(session.inputNames.join());
      await session.release();"""
    for command, given in ((["node", *flags, "-e", code], None), (["node", *flags, "-"], code)):
        done = subprocess.run(
            command, cwd=program, input=given, capture_output=True, text=True, timeout=600, check=True
        )
        assert done.stdout.split() == ["a,b"] and not done.stderr


def test_the_gpu_of_deno(program: Path) -> None:
    assert run(program, "deno", "webgpu.mjs") == [2, 3, 4, 5, 6, 7]


def test_the_program_of_the_documentation(program: Path) -> None:
    command = [*COMMANDS["node"], "start.mjs", "digits.onnx"]
    out = subprocess.run(command, cwd=program, check=True, capture_output=True, text=True, timeout=600).stdout
    assert out.startswith("A blank is read as ")


def test_required(program: Path) -> None:
    assert run(program, "node", "required.cjs") == [2, 4, 6, 8, 10, 12]

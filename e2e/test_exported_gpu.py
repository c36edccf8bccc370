"""Exported Programs for the GPU, in pages without Python: on SwiftShader, and on what else their file has."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from e2e.conftest import Tab
from e2e.test_exported import MODELS, changed, of_python
from e2e.test_webgpu_faults import KEEP_DEVICES, NO_ADAPTER, RIGHT, worker
from pyruntime import InferenceSession

BOTH = "[{ name: 'webgpu', allowSoftware: true }, 'wasm']"
TELL = """
  const x = new ort.Tensor('float32', new Float32Array(4096).fill(1), [64, 64]);
  const rounded = (data) => Array.from(data.slice(0, 3), (v) => Math.round(1000 * v) / 1000);
  const run = async (session) => rounded((await session.run({ x })).y.data);
  const reason = (action) => Promise.resolve().then(action).then(() => '', (e) => `${e.type}: ${e.message}`);
  const program = (name, options) => ort.InferenceSession.create(`/models/${name}.pyrt`, options);
  const tell = async (session) => {
    const numbers = await run(session);
    const { providers: { used, why }, placement } = await session.explain();
    return [numbers, used[0], why, Object.keys(placement)];
  };
  const opened = async (...what) => {
    const session = await program(...what);
    return tell(session).finally(() => session.release());
  };
"""


def layers() -> bytes:
    """Three products, which give RIGHT for ones. They are large enough for the GPU."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[64, 64] x) => (float[64, 3] y)
      { h = MatMul (x, a)  p = Relu (h)  q = MatMul (p, b)  r = Relu (q)  y = MatMul (r, c) }"""
    model = onnx.parser.parse_model(text)
    sizes = {"a": (64, 512), "b": (512, 512), "c": (512, 3)}
    for name, shape in sizes.items():
        values = np.full(shape, 1 / shape[0], np.float32) * (np.array(RIGHT, np.float32) if name == "c" else 1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model.SerializeToString()


def halves() -> bytes:
    """A product of half floats, which gives ones for ones."""
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float16[64, 64] x) => (float16[64, 4096] y)
      { y = MatMul (x, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((64, 4096), 1 / 64, np.float16), "w"))
    return model.SerializeToString()


def write(name: str, data: bytes) -> Path:
    """The file appears whole: another process of tests may write it as well."""
    new = MODELS / f"{name}.{os.getpid()}"
    new.write_bytes(data)
    return new.replace(MODELS / name)


@pytest.fixture(scope="module")
def programs(built: None) -> Path:
    session, half = InferenceSession(write("layers.onnx", layers())), InferenceSession(halves())
    both = session.export(weights=True, providers=["webgpu", "wasm"])
    write("gpu.pyrt", both)
    write("gpu_beside.pyrt", session.export(providers=["webgpu", "wasm"]))
    write("gpu_alone.pyrt", session.export(weights=True, providers=["webgpu"]))
    write("gpu_much.pyrt", changed(both, lambda header: header["needs"].update(storage_buffers=99)))
    write("gpu_half.pyrt", half.export(weights=True, providers=["webgpu", "wasm"], assume=["f16"]))
    return MODELS


ON_GPU = [RIGHT, "webgpu", "", ["webgpu"]]
SOFTWARE = "computes on the CPU"
LACKS = "lacks 99 storage buffers in one shader (it has"
WAYS: dict[str, tuple[str, Any]] = {  # file and options -> what `tell` gives, with a part of `why`; or an error
    "the GPU alone": ("'gpu', { executionProviders: ['webgpu'] }", ON_GPU),
    "a software adapter is allowed": (f"'gpu', {{ executionProviders: {BOTH} }}", ON_GPU),
    "weights are beside it": (f"'gpu_beside', {{ executionProviders: {BOTH} }}", ON_GPU),
    "no provider is named": ("'gpu'", [RIGHT, "wasm", SOFTWARE, ["wasm"]]),
    "nor a Program without it": ("'gpu_alone'", ON_GPU),
    "the GPU, if it is a real one": (
        "'gpu', { executionProviders: ['webgpu', 'wasm'] }",
        [RIGHT, "wasm", SOFTWARE, ["wasm"]],
    ),
    "auto": ("'gpu', { executionProviders: ['auto'] }", [RIGHT, "wasm", SOFTWARE, ["wasm"]]),
    "WebAssembly": ("'gpu', { executionProviders: ['wasm'] }", [RIGHT, "wasm", "", ["wasm"]]),
    "no GPU for shaders": (
        "'gpu_alone', { executionProviders: ['wasm'] }",
        "InvalidInput: this program runs on a GPU, which the session does not name",
    ),
    "the adapter lacks something": (
        f"'gpu_much', {{ executionProviders: {BOTH} }}",
        [RIGHT, "wasm", LACKS, ["wasm"]],
    ),
    "and there is no other": ("'gpu_much', { executionProviders: ['webgpu'] }", f"NoAdapter: .*{LACKS}"),
    "and fallback is off": (f"'gpu_much', {{ executionProviders: {BOTH}, fallback: false }}", f"NoAdapter: .*{LACKS}"),
}


def check(found: Any, expected: Any, way: str) -> None:
    if isinstance(expected, str):
        kind, _, text = expected.partition(": ")
        assert isinstance(found, str) and found.startswith(kind) and text.removeprefix(".*") in found, (way, found)
        return
    assert isinstance(found, list), (way, found)
    assert [*found[:2], found[3]] == [*expected[:2], expected[3]] and expected[2] in found[2], (way, found)
    assert bool(found[2]) == bool(expected[2]), (way, found)


def test_the_program_that_runs(programs: Path, tab: Callable[..., Tab]) -> None:
    """And again in a second visit. Python is not fetched."""
    made = tab()
    for _ in range(2):
        made.open("/esm.html")
        for way, (args, expected) in WAYS.items():
            check(made.run(f"{TELL} return opened({args}).catch((e) => `${{e.type}}: ${{e.message}}`)"), expected, way)
    assert not of_python(made)
    assert len([text for text in made.warnings if LACKS in text]) == 2


EXPORT = """
  const session = await ort.InferenceSession.create('/models/layers.onnx');
  const export_ = (providers, ...assume) => session.export({ providers, assume });
  const refused = [await reason(() => export_(['wasm'], 'f16')), await reason(() => export_(['webgpu'], 'f17'))];
  const files = [await export_(['webgpu', 'wasm']), await export_(['webgpu'], 'software', 'storage_buffers=99')];
  await session.release();
  const reader = (file) => new Promise((resolve) => {
    const reading = new FileReader();
    reading.onload = () => resolve(reading.result.split(',')[1]);
    reading.readAsDataURL(new Blob([file]));
  });
  return [refused, await Promise.all(files.map(reader))];
"""


def test_exported_in_a_page(programs: Path, tab: Callable[..., Tab]) -> None:
    """Another page opens the files without Python. They are like those that are exported natively."""
    author, reader = tab(), tab()
    author.open("/esm.html")
    found = author.run(TELL + EXPORT)
    assert isinstance(found, list)
    for text, part in zip(found[0], ("only a Program for the GPU", 'cannot assume "f17"'), strict=True):
        assert text.startswith("InvalidInput") and part in text
    for name, data in zip(("gpu", "gpu_alone"), found[1], strict=True):
        size = write(f"page_{name}.pyrt", base64.b64decode(data)).stat().st_size
        assert size == pytest.approx((programs / f"{name}.pyrt").stat().st_size, rel=0.05)
    reader.open("/esm.html")
    for way, (args, expected) in WAYS.items():
        if args.startswith(("'gpu'", "'gpu_alone'")):
            told = reader.run(f"{TELL} return opened('page_' + {args}).catch((e) => `${{e.type}}: ${{e.message}}`)")
            check(told, expected, way)
    assert not of_python(reader)


def test_no_adapter(programs: Path, tab: Callable[..., Tab]) -> None:
    made = tab()
    page = made.open("/esm.html")
    assert made.run(f"{TELL} return opened('gpu', {{ executionProviders: ['wasm'] }})") == WAYS["WebAssembly"][1]
    worker(page).evaluate(NO_ADAPTER)
    found: Any = made.run(
        TELL
        + """
        return [await opened('gpu'), await opened('gpu', { executionProviders: ['webgpu', 'wasm'] }),
          await reason(() => program('gpu', { executionProviders: ['webgpu'] })),
          await reason(() => program('gpu_alone'))];
        """
    )
    for told in found[:2]:
        check(told, [RIGHT, "wasm", "no WebGPU adapter", ["wasm"]], "no adapter")
    assert found[2].startswith("NoAdapter") and found[3].startswith("NoAdapter")
    assert not of_python(made)


WITHOUT_HALVES = """() => {
  const { get } = Object.getOwnPropertyDescriptor(GPUAdapter.prototype, 'features');
  const features = { get() { return new Set([...get.call(this)].filter((name) => name !== 'shader-f16')); } };
  Object.defineProperty(GPUAdapter.prototype, 'features', features);
}"""


def test_no_half_floats(programs: Path, tab: Callable[..., Tab]) -> None:
    made = tab()
    page = made.open("/esm.html")
    made.run(f"{TELL} return opened('gpu', {{ executionProviders: ['wasm'] }})")
    worker(page).evaluate(WITHOUT_HALVES)
    found: Any = made.run(
        TELL
        + """
        const half = new ort.Tensor('float16', new Uint16Array(4096).fill(0x3c00), [64, 64]);
        const executionProviders = [{ name: 'webgpu', allowSoftware: true }, 'wasm'];
        const session = await program('gpu_half', { executionProviders });
        const { y } = await session.run({ x: half });
        const { providers: { used, why } } = await session.explain();
        return [used[0], why, Array.from(y.data.slice(0, 2), Number), y.data.constructor.name];
        """
    )
    assert found[0] == "wasm" and "lacks half floats (shader-f16)" in found[1]
    assert found[2] == ([1, 1] if found[3] == "Float16Array" else [0x3C00, 0x3C00])


def test_device_lost(programs: Path, tab: Callable[..., Tab]) -> None:
    """The Program gets a new device; once there is none, the other Program of the file runs."""
    made = tab()
    page = made.open("/esm.html")
    made.run(f"{TELL} globalThis.other = await program('gpu', {{ executionProviders: ['wasm'] }})")
    worker(page).evaluate(KEEP_DEVICES)
    made.run(
        f"{TELL} globalThis.session = await program('gpu', {{ executionProviders: {BOTH} }});"
        " globalThis.alone = await program('gpu_alone'); await run(session); await run(alone)"
    )
    worker(page).evaluate("devices.at(-1).destroy()")
    assert made.run(f"{TELL} return [await tell(session), await tell(alone)]") == [ON_GPU, ON_GPU]
    assert worker(page).evaluate("devices.length") == 2
    worker(page).evaluate(NO_ADAPTER)
    worker(page).evaluate("devices.at(-1).destroy()")
    found: Any = made.run(f"{TELL} return [await tell(session), await reason(() => run(alone))]")
    check(found[0], [RIGHT, "wasm", "lost", ["wasm"]], "lost")
    assert found[1].startswith("DeviceLost")
    assert len([text for text in made.warnings if "continues on WebAssembly" in text]) == 1
    assert not of_python(made)


def test_on_the_pages_gpu(programs: Path, tab: Callable[..., Tab]) -> None:
    """Outputs stay in GPUBuffers, of a session that is created there, and of one that moves there."""
    made = tab()
    made.open("/esm.html")
    found: Any = made.run(
        TELL
        + """
        const options = { executionProviders: [{ name: 'webgpu', allowSoftware: true }, 'wasm'] };
        const session = await program('gpu', { ...options, preferredOutputLocation: 'gpu-buffer' });
        const { y } = await session.run({ x });
        const where = y.location;
        const numbers = rounded(await y.getData());
        const { providers: { used } } = await session.explain();
        const much = await program('gpu_much', { ...options, preferredOutputLocation: 'gpu-buffer' });
        const moved = await program('gpu', options);
        const before = await run(moved);
        const device = await ort.env.webgpu.device;
        const buffer = device.createBuffer({ size: x.data.byteLength, usage: 140, mappedAtCreation: true });
        new Float32Array(buffer.getMappedRange()).set(x.data);
        buffer.unmap();
        const feed = ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims: x.dims });
        const after = rounded((await moved.run({ x: feed })).y.data);
        return { numbers, used, much: await tell(much), before, after, where };
        """
    )
    assert found["numbers"] == found["after"] == found["before"] == RIGHT
    assert found["used"][0] == "webgpu" and found["where"] == "gpu-buffer"
    check(found["much"], [RIGHT, "wasm", LACKS, ["wasm"]], "much")
    assert not of_python(made)

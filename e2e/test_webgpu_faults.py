"""What goes wrong with a GPU: none there, lost, full, a kernel refused or wrong. Faults are made in the worker."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from playwright.sync_api import Page

from e2e.conftest import Tab

OPEN = """
  const x = new ort.Tensor('float32', Float32Array.from([1, 2, 3, 4]), [1, 4]);
  const create = (name, options) => ort.InferenceSession.create(`/models/${name}.onnx`, options);
  const open = (executionProviders = ['webgpu']) => create('affine', { executionProviders });
  const run = async (session) => Array.from((await session.run({ x })).y.data, (v) => Math.round(1000 * v) / 1000);
  const place = async (session) => Object.keys((await session.explain()).placement);
  const reason = (action) => Promise.resolve().then(action).then(() => '', (e) => `${e.type}: ${e.message}`);
"""
RIGHT = [1.5, 1.75, 3.125]

NO_ADAPTER = "navigator.gpu.requestAdapter = async () => null"
KEEP_DEVICES = """() => {
  const request = GPUAdapter.prototype.requestDevice;
  globalThis.devices = [];
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await request.apply(this, args);
    globalThis.devices.push(device);
    return device;
  };
}"""
BREAK_KERNEL = """([label, from, to]) => {
  const make = GPUDevice.prototype.createShaderModule;
  GPUDevice.prototype.createShaderModule = function (descriptor) {
    const broken = descriptor.label.includes(label) ? descriptor.code.replaceAll(from, to) : descriptor.code;
    return make.call(this, { ...descriptor, code: broken });
  };
}"""
OUT_OF_MEMORY = """(times) => {
  const make = GPUDevice.prototype.createBuffer;
  const push = GPUDevice.prototype.pushErrorScope;
  const pop = GPUDevice.prototype.popErrorScope;
  const scopes = [];
  GPUDevice.prototype.pushErrorScope = function (filter) { scopes.push({ filter }); push.call(this, filter); };
  GPUDevice.prototype.createBuffer = function (descriptor) {
    const isDue = descriptor.label.startsWith('arena') && times > 0;
    const full = isDue && scopes.find(({ filter }) => filter === 'out-of-memory');
    if (!full) return make.call(this, descriptor);
    times--;
    full.error = new GPUOutOfMemoryError('made by the test');
    push.call(this, 'validation');
    const invalid = make.call(this, { ...descriptor, size: 2 ** 50 });
    pop.call(this);
    return invalid;
  };
  GPUDevice.prototype.popErrorScope = function () {
    const { error } = scopes.pop();
    const real = pop.call(this);
    return error ? real.then(() => error) : real;
  };
}"""


@pytest.fixture
def booted(tab: Callable[..., Tab]) -> tuple[Tab, Page]:
    made = tab()
    page = made.open("/esm.html")
    made.run("await ort.boot()")
    return made, page


def worker(page: Page) -> Any:
    return next(w for w in page.workers if "worker.mjs" in w.url)


def test_no_adapter(booted: tuple[Tab, Page]) -> None:
    """One warning and WebAssembly, or an error if only the GPU was asked for."""
    made, page = booted
    worker(page).evaluate(NO_ADAPTER)
    found: Any = made.run(
        OPEN
        + """
        const session = await open(['webgpu', 'wasm']);
        return [await run(session), await place(session), await reason(() => open(['webgpu']))];
        """
    )
    assert found[0] == RIGHT and found[1] == ["wasm"]
    assert found[2].startswith("NoAdapter") and "wasm" in found[2]
    assert len([text for text in made.warnings if "WebGPU adapter" in text]) == 1


BREAK_GROUP = """() => {
  const make = GPUDevice.prototype.createBindGroup;
  GPUDevice.prototype.createBindGroup = function (how) {
    GPUDevice.prototype.createBindGroup = make;
    return make.call(this, { ...how, entries: how.entries.slice(1) });
  };
}"""


def test_an_error_concerns_its_own_session(booted: tuple[Tab, Page]) -> None:
    """The GPU refuses a bind group, and later reports that the commands with it are invalid."""
    made, page = booted
    made.run(OPEN + "globalThis.other = await open(); await run(other);")
    worker(page).evaluate(BREAK_GROUP)
    found: Any = made.run(
        OPEN
        + """
        const session = await open();
        return [await reason(() => run(session)), await run(other), await run(other), await run(session)];
        """
    )
    assert found[0].startswith("ExecutionError") and "WebGPU refused this kernel" in found[0]
    assert found[1:] == [RIGHT] * 3


def test_device_lost(booted: tuple[Tab, Page]) -> None:
    """Between runs and during one: the device, the pipelines and the weights are made again, the run is repeated."""
    made, page = booted
    worker(page).evaluate(KEEP_DEVICES)
    made.run(OPEN + "globalThis.session = await open(); globalThis.before = await run(session);")
    worker(page).evaluate("devices.at(-1).destroy()")
    found: Any = made.run(OPEN + "return [before, await run(session), await place(session)]")
    assert found == [RIGHT, RIGHT, ["webgpu"]]
    worker(page).evaluate(
        "() => { const submit = GPUQueue.prototype.submit; GPUQueue.prototype.submit = function (list) {"
        " GPUQueue.prototype.submit = submit; submit.call(this, list); devices.at(-1).destroy(); } }"
    )
    found = made.run(OPEN + "return [await run(session), await place(session)]")
    assert found == [RIGHT, ["webgpu"]]
    assert worker(page).evaluate("devices.length") == 3


# what the engine calls while it makes a session: a device, its memory, its code, what init submits
MOMENTS = {
    "device": "GPUAdapter.prototype, 'requestDevice'",
    "memory": "GPUDevice.prototype, 'createBuffer'",
    "shader": "GPUDevice.prototype, 'createShaderModule'",
    "pipeline": "GPUDevice.prototype, 'createComputePipelineAsync'",
    "submit": "GPUQueue.prototype, 'submit'",
    "read": "GPUBuffer.prototype, 'mapAsync'",
}
LOSE_AT = """([prototype, name]) => {
  const real = prototype[name];
  prototype[name] = function (...args) {
    prototype[name] = real;
    const made = real.apply(this, args);
    if (name === 'requestDevice') return made.then((device) => { device.destroy(); return device; });
    devices.at(-1).destroy();
    return made;
  };
}"""


@pytest.mark.parametrize("moment", MOMENTS)
def test_device_lost_while_a_session_is_made_or_runs(booted: tuple[Tab, Page], moment: str) -> None:
    """Both it and what it computes are right, on a new device, and so is the session after it."""
    made, page = booted
    worker(page).evaluate(KEEP_DEVICES)
    worker(page).evaluate(f"() => ({LOSE_AT})([{MOMENTS[moment]}])")
    for _ in range(2):
        found: Any = made.run(OPEN + "const session = await open(); return [await run(session), await place(session)]")
        assert found == [RIGHT, ["webgpu"]]
    assert worker(page).evaluate("devices.length") == 2


def test_device_lost_for_good(tab: Callable[..., Tab]) -> None:
    """No other device: the session continues on WebAssembly; a tensor that was on the GPU says that it is gone."""
    made = tab()
    page = made.open("/esm.html")
    page.evaluate(KEEP_DEVICES)
    made.run(
        """
        const add = { executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer' };
        globalThis.session = await ort.InferenceSession.create('/models/add.onnx', add);
        globalThis.a = new ort.Tensor('float32', new Float32Array(6).fill(2), [2, 3]);
        globalThis.kept = await session.run({ a, b: a });
        """
    )
    page.evaluate(f"() => {{ {NO_ADAPTER}; devices.at(-1).destroy(); }}")
    found: Any = made.run(
        OPEN
        + """
        const { c } = await session.run({ a, b: a });
        return [c.location, ...c.data, await place(session), await reason(() => session.run({ a: kept.c, b: a }))];
        """
    )
    assert found[:7] == ["cpu", 4, 4, 4, 4, 4, 4] and found[7] == ["wasm"]
    assert found[8].startswith("DeviceLost")


def test_refused_kernel(booted: tuple[Tab, Page]) -> None:
    """The error of a kernel that does not compile names its node."""
    made, page = booted
    worker(page).evaluate(BREAK_KERNEL, ["MatMul", "fn main", "nonsense"])
    found: Any = made.run(OPEN + "return reason(open)")
    assert found.startswith("ExecutionError") and 'MatMul "product"' in found


def test_verify(booted: tuple[Tab, Page]) -> None:
    """Nothing to say about right kernels; of wrong ones the first is named."""
    made, page = booted
    verify = """
      const session = await create(arg, { executionProviders: ['webgpu'] });
      const feeds = session.inputMetadata.map(({ name, shape }) => {
        const dims = shape.map((n) => (typeof n === 'number' ? n : 1));
        const data = Float32Array.from({ length: dims.reduce((all, n) => all * n, 1) }, (_, i) => Math.sin(i));
        return [name, new ort.Tensor('float32', data, dims)];
      });
      return session.verify(Object.fromEntries(feeds));
    """
    found: Any = made.run(OPEN + verify, "affine")
    assert found["ok"] and found["compared"] > 0 and found["first"] is None
    worker(page).evaluate(BREAK_KERNEL, ["MaxPool", "b1[", "1.0f / (b1[0] - b1[0]) * b1["])
    found = made.run(
        OPEN + verify.replace("create(arg,", "ort.InferenceSession.create(arg,"), "/site/digits/digits.onnx"
    )
    assert not found["ok"] and found["compared"] == 6
    assert found["first"]["node"] == 'MaxPool "pool1" (opset 17)' and found["first"]["kernel"]
    assert found["nonFinite"]["node"] == found["first"]["node"] and found["nonFinite"]["error"] == math.inf
    ranges = """
      const session = await ort.InferenceSession.create(Uint8Array.from(arg)); // on WebAssembly
      const x = new ort.Tensor('float16', new Uint16Array(4).fill(0x5cb0), [1, 4]); // 300
      return [await session.verify({ x }, { ranges: true }), await session.verify({ x }, {}).catch((e) => e.type)];
    """
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float16[1, 4] x) => (float16[1, 4] y)
        { n = Neg (x) s = Mul (n, n) r = Sqrt (s) y = Add (r, x) }"""
    checked = made.run(ranges, list(onnx.parser.parse_model(text).SerializeToString()))
    first = {"node": 'Mul "s" (opset 17)', "output": "s", "magnitude": 90000}
    assert checked == [{"ok": False, "checked": 5, "first": first}, "InvalidInput"]


COUNT_MEMORY = """() => {
  const { createBuffer } = GPUDevice.prototype;
  const { destroy } = GPUBuffer.prototype;
  const { Memory } = WebAssembly;
  const held = new Set();
  let memories = 0;
  GPUDevice.prototype.createBuffer = function (descriptor) {
    const buffer = createBuffer.call(this, descriptor);
    held.add(buffer);
    return buffer;
  };
  GPUBuffer.prototype.destroy = function () { held.delete(this); destroy.call(this); };
  WebAssembly.Memory = class extends Memory { constructor(how) { super(how); memories++; } };
  globalThis.held = () => [[...held].reduce((sum, { size }) => sum + size, 0), memories];
}"""


@pytest.mark.parametrize("way", ["right kernels", "a wrong feed"])
def test_verify_gives_its_memory_back(booted: tuple[Tab, Page], way: str) -> None:
    """Both programs' memory, on the GPU and linear: a second and a third time take nothing more than the first."""
    made, page = booted
    worker(page).evaluate(COUNT_MEMORY)
    verify = """
      globalThis.session ??= await create('affine', { executionProviders: ['webgpu'] });
      const given = arg === 'right kernels' ? x : new ort.Tensor('float32', new Float32Array(5), [1, 5]);
      return reason(() => globalThis.session.verify({ x: given }));
    """
    held = []
    for _ in range(3):
        refused = made.run(OPEN + verify, way)
        assert ("InvalidInput" in str(refused)) is (way == "a wrong feed")
        held.append(worker(page).evaluate("held()"))
    assert held[0][0] > 0 and held[0][1] > 0
    assert held[1] == held[0] and held[2] == held[0]


@pytest.mark.parametrize("times", [1, 9])
def test_out_of_memory(booted: tuple[Tab, Page], times: int) -> None:
    """Pools are freed and the run repeated; if that does not help a clear error, and the session stays usable."""
    made, page = booted
    worker(page).evaluate(OUT_OF_MEMORY, times)
    found: Any = made.run(
        """
        const session = await ort.InferenceSession.create('/models/add.onnx', { executionProviders: ['webgpu'] });
        const a = new ort.Tensor('float32', new Float32Array(6).fill(2), [2, 3]);
        const out = [];
        const told = (e) => `${e.type}: ${e.message}`;
        for (let i = 0; i < 6; i++) out.push(await session.run({ a, b: a }).then(({ c }) => c.data[0], told));
        return out;
        """
    )
    assert found[-1] == 4, found
    assert all(told == 4 or told.startswith("OutOfMemory") for told in found), found
    if times == 1:
        assert found[0] == 4
    else:
        assert found[0].startswith("OutOfMemory") and "GPU" in found[0]

"""The page's own GPU in Chromium (SwiftShader): its device and buffers, what crosses, what is refused, traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab, new_tab
from pyruntime.cli.serve import Server

# c = a + b, d = a - b, of float32 [2, 3]
OPEN = """
  const FULL = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const create = (model, options) => ort.InferenceSession.create(model, { executionProviders: ['webgpu'], ...options });
  const add = (options) => create('/models/add.onnx', options);
  const kept = { preferredOutputLocation: 'gpu-buffer' };
  const cpu = (...values) => new ort.Tensor('float32', Float32Array.from(values), [2, 3]);
  const six = cpu(1, 2, 3, 4, 5, 6);
  const filled = (device, data, usage = FULL) => {
    const buffer = device.createBuffer({ size: data.byteLength, usage, mappedAtCreation: true });
    new data.constructor(buffer.getMappedRange()).set(data);
    buffer.unmap();
    return buffer;
  };
  const wrap = (buffer, dims = [2, 3], dataType = 'float32') => ort.Tensor.fromGpuBuffer(buffer, { dataType, dims });
  const words = (error) => `${error.type}: ${error.message}`;
  const reason = (action) => Promise.resolve().then(action).then(() => 'taken', words);
"""
COUNT = """() => {
  const crossed = globalThis.crossed = { read: 0, written: 0, copied: 0 };
  const { mapAsync } = GPUBuffer.prototype;
  const { writeBuffer } = GPUQueue.prototype;
  GPUBuffer.prototype.mapAsync = function (mode, offset = 0, size = this.size - offset) {
    crossed.read += size;
    return mapAsync.call(this, mode, offset, size);
  };
  const { copyBufferToBuffer } = GPUCommandEncoder.prototype;
  GPUCommandEncoder.prototype.copyBufferToBuffer = function (source, at, target, to, size) {
    if (!(target.usage & GPUBufferUsage.MAP_READ)) crossed.copied += size;
    return copyBufferToBuffer.call(this, source, at, target, to, size);
  };
  GPUQueue.prototype.writeBuffer = function (buffer, at, data, ...rest) {
    crossed.written += data.byteLength;
    return writeBuffer.call(this, buffer, at, data, ...rest);
  };
}"""


@pytest.fixture(scope="module")
def shared(browser: Browser, servers: dict[str, Server]) -> Iterator[Tab]:
    tab = new_tab(browser, servers["isolated"])
    tab.open("/esm.html")
    tab.run("await ort.boot()")
    yield tab
    tab.page.context.close()


@pytest.fixture
def page(shared: Tab) -> Iterator[Tab]:
    """Tests share it and its worker. Each begins with the page's GPU as it was before."""
    yield shared
    shared.run("ort.env.webgpu.device = undefined; ort.env.webgpu.adapter = undefined; ort.env.webgpu.profiling = {}")
    shared.check()


def test_device_after_a_session(page: Tab) -> None:
    """As onnxruntime-web's programs do it: the session's device is read, and its buffers are fed and filled."""
    found = page.run(
        OPEN
        + """
        const session = await add();
        const adapter = ort.env.webgpu.adapter;
        const device = await ort.env.webgpu.device;
        const [a, b, c] = [6, 5, 4].map((k) => wrap(filled(device, Float32Array.of(k, 2, 3, 4, 5, 6))));
        const made = await session.run({ a, b }, { c });
        const read = async ({ gpuBuffer }) => {
          const staging = device.createBuffer({ size: 24, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
          const encoder = device.createCommandEncoder();
          encoder.copyBufferToBuffer(gpuBuffer, 0, staging, 0, 24);
          device.queue.submit([encoder.finish()]);
          await staging.mapAsync(GPUMapMode.READ);
          return Array.from(new Float32Array(staging.getMappedRange()));
        };
        const place = Object.keys((await session.explain()).placement);
        const later = await session.run({ a: six, b });
        const kinds = [adapter instanceof GPUAdapter, device instanceof GPUDevice, made.c === c];
        const taken = [Array.from(later.c.data), later.c.location, await reason(() => c.getData())];
        return [...kinds, Object.keys(made), await read(c), place, ...taken];
        """
    )
    eleven = [11, 4, 6, 8, 10, 12]
    six = [6, 4, 6, 8, 10, 12]
    assert isinstance(found, list)
    assert found[:8] == [True, True, True, ["c"], eleven, ["webgpu"], six, "cpu"]
    assert "downloader" in found[8]  # of buffers of the page, as in onnxruntime-web


@pytest.mark.parametrize("way", ["env.device", "env.adapter", "provider"])
def test_device_that_is_given(page: Tab, way: str) -> None:
    """Everything of the session is made on it, with the limits of a plain device."""
    found = page.run(
        OPEN
        + """
        const adapter = await navigator.gpu.requestAdapter();
        const given = arg === 'env.adapter' ? null : await adapter.requestDevice();
        if (arg === 'env.device') ort.env.webgpu.device = given;
        if (arg === 'env.adapter') ort.env.webgpu.adapter = adapter;
        const options = arg === 'provider' ? { executionProviders: [{ name: 'webgpu', device: given }] } : {};
        const { createBuffer } = GPUDevice.prototype;
        const used = new Set();
        GPUDevice.prototype.createBuffer = function (how) {
          used.add(this);
          return createBuffer.call(this, how);
        };
        const session = await add({ ...options, ...kept });
        const { c } = await session.run({ a: six, b: six });
        const data = Array.from(await c.getData());
        GPUDevice.prototype.createBuffer = createBuffer;
        const device = given ?? await ort.env.webgpu.device;
        const timings = await session.profile({ a: six, b: six });
        const byClock = timings.map(({ place, start }) => [place, start !== undefined]);
        return [data, used.size === 1 && used.has(device), byClock];
        """,
        way,
    )
    clock = way == "env.adapter"  # a plain device has no timestamp-query
    assert found == [[2, 4, 6, 8, 10, 12], True, [["webgpu", clock]] * 2]


def test_what_is_given_must_be_a_device(page: Tab) -> None:
    found = page.run(
        OPEN
        + """
        const provider = () => add({ executionProviders: [{ name: 'webgpu', device: {} }] });
        const set = (name) => () => { ort.env.webgpu[name] = {}; };
        return [await reason(set('device')), await reason(set('adapter')), await reason(provider)];
        """
    )
    assert isinstance(found, list)
    assert all(text.startswith("InvalidInput") and "cannot be" in text for text in found)
    assert ["GPUDevice" in text for text in found] == [True, False, True]


def test_nothing_crosses(page: Tab) -> None:
    """Two sessions, one after the other, 20 times, outputs by name and into buffers: no byte is read or written."""
    page.page.evaluate(COUNT)
    found = page.run(
        OPEN
        + """
        const first = await add(kept);
        const second = await add({ preferredOutputLocation: { c: 'gpu-buffer', d: 'cpu' } });
        const device = await ort.env.webgpu.device;
        const a = wrap(filled(device, Float32Array.of(1, 2, 3, 4, 5, 6)));
        const into = wrap(filled(device, new Float32Array(6)));
        await first.run({ a, b: a }); // constants
        for (const names of [undefined, ['c']]) await second.run({ a, b: a }, names);
        Object.assign(crossed, { read: 0, written: 0, copied: 0 });
        let sum = a;
        const live = (await ort.stats()).tensors;
        for (let n = 0; n < 20; n++) {
          const { c, d } = await first.run({ a: sum, b: a });
          const { c: next } = await second.run({ a: d, b: a }, n % 2 ? ['c'] : { c: into });
          for (const tensor of [sum, d]) if (tensor !== a) tensor.dispose();
          if (next !== into) next.dispose();
          sum = c;
        }
        const total = { ...crossed };
        const data = Array.from(await sum.getData());
        sum.dispose();
        const split = await second.run({ a, b: a });
        const kinds = [split.c.location, split.d.location];
        split.c.dispose();
        return [total, data, crossed.read, kinds, (await ort.stats()).tensors <= live];
        """
    )
    assert found == [
        {"read": 0, "written": 0, "copied": 48},
        [21, 42, 63, 84, 105, 126],
        48,
        ["gpu-buffer", "cpu"],
        True,
    ]


PICK = """<ir_version: 9, opset_import: ["" : 18]>
    g (float[4] x, int64[3] i, bool[3] p) => (float[3] y, int64[1] n, bool[3] q)
    { y = Gather (x, i)  n = ArgMax (y)  q = Not (p) }"""


def test_overlapping_runs(page: Tab) -> None:
    """Feeds changed right after each call: every run saw its own."""
    found = page.run(
        OPEN
        + """
        const session = await add(kept);
        const a = cpu(0, 0, 0, 0, 0, 0);
        const runs = [];
        for (let k = 0; k < 6; k++) {
          a.data.fill(k);
          runs.push(session.run({ a, b: six }));
        }
        const values = await Promise.all((await Promise.all(runs)).map(({ c }) => c.getData(true)));
        await session.release();
        return values.map((data) => data[5]);
        """
    )
    assert found == [6, 7, 8, 9, 10, 11]


def test_creation_is_stopped(page: Tab) -> None:
    found = page.run(
        OPEN
        + """
        const { sessions } = await ort.stats();
        const controller = new AbortController();
        const creating = add({ ...kept, signal: controller.signal }).then(() => 'made', ({ name }) => name);
        setTimeout(() => controller.abort(), arg);
        const how = await creating;
        const session = await add(kept);
        await session.release();
        return [how, (await ort.stats()).sessions - sessions];
        """,
        0,
    )
    assert found == ["AbortError", 0]


def test_integers_in_buffers(page: Tab) -> None:
    """64 bits there, 32 in kernels: what does not fit, and an index out of range, is refused though nothing is read."""
    found = page.run(
        OPEN
        + """
        const session = await create(Uint8Array.from(arg), kept);
        const device = await ort.env.webgpu.device;
        const wide = (...values) => wrap(filled(device, BigInt64Array.from(values)), [3], 'int64');
        const x = new ort.Tensor('float32', [10, 40, 20, 30], [4]);
        const p = wrap(filled(device, Uint8Array.of(1, 0, 1, 7)), [3], 'bool');
        const run = async (i) => {
          const { y, n, q } = await session.run({ x, i, p });
          if ([y, n, q].some(({ location }) => location !== 'gpu-buffer')) throw new Error('came back');
          const again = wrap(filled(device, new BigInt64Array(1)), [1], 'int64');
          await session.run({ x, i, p }, { n: again });
          if (again.gpuBuffer.size !== 8) throw new Error('not 8 bytes');
          return [Array.from(await y.getData()), Array.from(await n.getData(), String), Array.from(await q.getData())];
        };
        const out = [await run(wide(3n, 1n, 0n)), await reason(() => run(wide(0n, 2n ** 40n, 1n)))];
        out.push(await reason(() => run(wide(0n, 2n ** 32n, 1n))), await reason(() => run(wide(0n, 9n, 1n))));
        return [...out, await run(wide(-1n, 2n, 0n)), Object.keys((await session.explain()).placement)];
        """,
        list(onnx.parser.parse_model(PICK).SerializeToString()),
    )
    assert isinstance(found, list)
    first, *refused, last, places = found
    assert places == ["webgpu"]
    assert first == [[30, 40, 10], ["1"], [0, 1, 0]] and last == [[30, 20, 10], ["0"], [0, 1, 0]]
    assert all(text.startswith("ExecutionError") for text in refused)
    assert ["32-bit" in text for text in refused] == [True, True, False] and "out of range" in refused[2]


def test_buffers_that_cannot_be_used(page: Tab) -> None:
    """Refused by name and with the reason; the session runs on."""
    found = page.run(
        OPEN
        + """
        const session = await add(kept);
        const device = await ort.env.webgpu.device;
        const other = await (await navigator.gpu.requestAdapter()).requestDevice();
        const data = Float32Array.of(1, 2, 3, 4, 5, 6);
        const good = wrap(filled(device, data));
        const destroyed = filled(device, data);
        destroyed.destroy();
        const mapped = device.createBuffer({ size: 24, usage: FULL, mappedAtCreation: true });
        const gone = (await session.run({ a: good, b: good })).c;
        gone.dispose();
        const feeds = {
          small: wrap(filled(device, data.slice(1))),
          usage: wrap(filled(device, data, GPUBufferUsage.UNIFORM)),
          destroyed: wrap(destroyed),
          mapped: wrap(mapped),
          device: wrap(filled(other, data)),
          bound: wrap(filled(other, data, GPUBufferUsage.STORAGE)),
          kind: wrap({ size: 24 }),
          dims: wrap(good.gpuBuffer, [3, 2]),
          rank: wrap(good.gpuBuffer, [6]),
          type: wrap(good.gpuBuffer, [2, 3], 'int32'),
          disposed: gone,
        };
        const out = {};
        for (const name in feeds) out[name] = await reason(() => session.run({ a: good, b: feeds[name] }));
        const read = wrap(filled(device, data, GPUBufferUsage.COPY_SRC));
        const targets = { into: feeds.small, shape: wrap(good.gpuBuffer, [6]), read };
        const both = { a: good, b: good };
        for (const name in targets) out[name] = await reason(() => session.run(both, { c: targets[name] }));
        const plain = await ort.InferenceSession.create('/models/add.onnx');
        out.plain = await reason(() => plain.run(both));
        out.fill = await reason(() => plain.run({ a: six, b: six }, { c: good }));
        const [bound, target] = [1, 2].map(() => wrap(filled(device, data, GPUBufferUsage.STORAGE)));
        const { c } = await session.run({ a: bound, b: good }, { c: target });
        const { d } = await session.run({ a: c, b: good });
        return [out, Array.from(await d.getData())];
        """
    )
    assert isinstance(found, list)
    parts = {
        "small": "needs 24 bytes, its GPUBuffer has 20", "usage": "lacks the usage", "destroyed": "was destroyed",
        "mapped": "is mapped", "device": "another GPUDevice", "bound": "another GPUDevice", "kind": "not a GPUBuffer",
        "dims": "index: 0", "rank": "rank Got: 1 Expected: 2", "type": "must be float32", "disposed": "disposed",
        "into": 'to fill for "c"', "shape": "[6]", "read": "COPY_DST", "plain": "no GPU", "fill": "no GPU",
    }  # fmt: skip
    assert found[0].keys() == parts.keys()
    for name, part in parts.items():
        assert found[0][name].startswith("InvalidInput") and part in found[0][name], (name, found[0][name])
    assert found[1] == [1, 2, 3, 4, 5, 6]


def test_a_given_device_is_lost(page: Tab) -> None:
    """It cannot be replaced: an error that says so; a session on another device works."""
    found = page.run(
        OPEN
        + """
        const device = await (await navigator.gpu.requestAdapter()).requestDevice();
        const options = { executionProviders: [{ name: 'webgpu', device }], ...kept };
        const session = await add(options);
        const { c } = await session.run({ a: six, b: six });
        device.destroy();
        await device.lost;
        const ways = [() => session.run({ a: six, b: six }), () => c.getData(), () => add(options)];
        const out = await Promise.all(ways.map(reason));
        const { d } = await (await add()).run({ a: six, b: six });
        return [out, Array.from(d.data)];
        """
    )
    assert isinstance(found, list)
    assert all(text.startswith("DeviceLost") and "another GPUDevice" in text for text in found[0]), found[0]
    assert found[1] == [0] * 6


def test_own_device_is_lost(page: Tab) -> None:
    """Replaced, as in the worker; tensors on it are gone and say so."""
    found = page.run(
        OPEN
        + """
        const session = await add(kept);
        const { c } = await session.run({ a: six, b: six });
        const device = await ort.env.webgpu.device;
        device.destroy();
        await device.lost;
        const gone = await reason(() => session.run({ a: c, b: six }));
        const again = await session.run({ a: six, b: six });
        return [gone, Array.from(await again.c.getData()), await ort.env.webgpu.device !== device];
        """
    )
    assert isinstance(found, list)
    assert found[0].startswith("DeviceLost") and found[1:] == [[2, 4, 6, 8, 10, 12], True]


@pytest.mark.parametrize("place", ["page", "worker"])
def test_traces(page: Tab, tab: Callable[..., Tab], place: str) -> None:
    """Kernels of the GPU in a row of their own, by its clock, as long as they take and within the run's time."""
    if place == "worker":  # a page that never asked for its GPU
        page = tab()
        page.open("/esm.html")
    found = page.run(
        OPEN
        + """
        const session = await add({ ...(arg === 'page' && kept), enableProfiling: true });
        for (let n = 0; n < 3; n++) await session.run({ a: six, b: six });
        const { log } = console;
        console.log = () => {};
        const text = session.endProfiling();
        console.log = log;
        const told = [];
        ort.env.webgpu.profiling = { mode: 'default', ondata: (data) => told.push(data) };
        await session.run({ a: six, b: six });
        ort.env.webgpu.profiling.mode = 'off';
        await session.run({ a: six, b: six });
        return [text, told, await session.profile({ a: six, b: six })];
        """,
        place,
    )
    assert isinstance(found, list)
    text, told, profiled = found
    events: list[dict[str, Any]] = json.loads(text)
    names = [event["args"]["name"] for event in events if event["ph"] == "M"]
    kernels = [event for event in events if event.get("cat") == "Node"]
    runs = [event for event in events if event["name"] == "model_run"]
    assert names == ["session", "GPU"] and len(runs) == 3 and len(kernels) == 6
    places = {(event["tid"], event["args"]["provider"]) for event in kernels}
    assert places == {(2, "WebGpuExecutionProvider")} and {event["tid"] for event in runs} == {1}
    for event, run in zip(kernels, [run for run in runs for _ in range(2)], strict=True):
        assert 0 <= event["dur"] <= run["dur"] and run["ts"] <= event["ts"]
    assert [data["kernelType"] for data in told] == ["Add", "Sub"]
    assert all(data["version"] == 1 and data["endTime"] >= data["startTime"] >= 0 for data in told)
    assert [(timing["place"], timing["bytes"]) for timing in profiled] == [("webgpu", 72)] * 2
    assert all("start" in timing for timing in profiled)  # SwiftShader has timestamp-query


SPLIT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n] x, string[n] t) => (float[n] y, float[n] z) {
  m = RegexFullMatch <pattern = "a+"> (t)  u = Exp (x)  w = Where (m, x, u)
  d = Cast <to = 11> (w)  s = Sin (d)  v = Cast <to = 1> (s)  y = Mul (v, w)  z = Neg (w)
}"""


def test_a_split_program(page: Tab) -> None:
    """Steps of the GPU, of WebAssembly and of Python, which is in the worker; buffers in and out, other lengths."""
    found = page.run(
        OPEN
        + """
        const session = await create(Uint8Array.from(arg), kept);
        const device = await ort.env.webgpu.device;
        const out = [];
        for (const n of [3, 5, 3]) {
          const x = wrap(filled(device, Float32Array.from({ length: n }, (_, i) => i / 4)), [n]);
          const t = new ort.Tensor('string', Array.from({ length: n }, (_, i) => (i % 2 ? 'aa' : 'b')), [n]);
          const { y, z } = await session.run({ x, t });
          out.push([y.location, Array.from(await y.getData()), Array.from(await z.getData())]);
        }
        const { placement } = await session.explain();
        await session.release();
        return [out, placement];
        """,
        list(onnx.parser.parse_model(SPLIT).SerializeToString()),
    )
    assert isinstance(found, list)
    out, placement = found
    assert {"webgpu", "wasm"} <= set(placement)
    for n, (location, y, z) in zip((3, 5, 3), out, strict=True):
        x = np.arange(n) / 4
        w = np.where(np.arange(n) % 2, x, np.exp(x))
        assert location == "gpu-buffer"
        np.testing.assert_allclose(y, np.sin(w) * w, rtol=1e-5)
        np.testing.assert_allclose(z, -w, rtol=1e-6)


def test_a_session_that_cannot_move(tab: Callable[..., Tab]) -> None:
    """To the page's GPU, which refuses a kernel: it says why, and runs on where it was; it moves when it can."""
    page = tab()
    page.open("/esm.html")
    found = page.run(
        OPEN
        + """
        const [moves, leaves, stays] = [await add(), await add(), await add()];
        const { sessions } = await ort.stats();
        const counted = async () => (await ort.stats()).sessions - sessions;
        const a = wrap(filled(await ort.env.webgpu.device, Float32Array.of(1, 2, 3, 4, 5, 6)));
        const numbers = async (session, feed) => Array.from((await session.run({ a: feed, b: six })).c.data);
        const make = GPUDevice.prototype.createComputePipelineAsync;
        GPUDevice.prototype.createComputePipelineAsync = () => Promise.reject(new Error('no room'));
        const [refused, meanwhile] = await Promise.all([reason(() => moves.run({ a, b: six })), numbers(moves, six)]);
        const again = await reason(() => leaves.run({ a, b: six }));
        GPUDevice.prototype.createComputePipelineAsync = make;
        const here = [meanwhile, await numbers(moves, six)];
        const { placement } = await moves.explain();
        const there = [await numbers(moves, a), await numbers(moves, six), await numbers(stays, a)];
        await leaves.release();
        return [refused, again, [...here, ...there], Boolean(placement), await counted()];
        """
    )
    assert isinstance(found, list)
    assert all(text.startswith("SessionFailed: the session could not move") and "no room" in text for text in found[:2])
    assert found[2:] == [[[2, 4, 6, 8, 10, 12]] * 5, True, -1]


@pytest.mark.parametrize("path", ["/esm.html", "/script.html"])
def test_code_for_it_comes_when_it_is_wanted(tab: Callable[..., Tab], path: str) -> None:
    """Not for sessions on the CPU or on the worker's GPU; once for all others; again after it did not come."""
    page = tab()
    page.open(path)

    def fetched() -> int:
        return sum(url.endswith("executor.mjs") for url in page.requests)

    page.run(OPEN + "await (await add()).run({ a: six, b: six }); await add({ executionProviders: ['wasm'] })")
    assert fetched() == 0 and page.run("return (await ort.stats()).tensors") == 0
    page.page.route("**/executor.mjs", lambda route: route.abort())
    refused = page.run(OPEN + "return [await reason(() => add(kept)), await reason(() => ort.env.webgpu.device)]")
    assert isinstance(refused, list) and all(
        text.startswith("SessionFailed") and "executor.mjs" in text for text in refused
    )
    page.page.unroute("**/executor.mjs")
    page.forgive("ERR_FAILED")
    before = fetched()
    found = page.run(
        OPEN
        + """
        const [one, other] = await Promise.all([add(kept), add(kept)]), first = await one.run({ a: six, b: six });
        const second = await other.run({ a: first.c, b: six });
        const wrong = await one.run({ a: six }).catch((error) => error instanceof ort.InvalidInput);
        const data = Array.from(await second.d.getData());
        return [data, (await ort.stats()).tensors, wrong, [first, second].length]; // held until counted
        """
    )
    assert found == [[1, 2, 3, 4, 5, 6], 4, True, 2] and fetched() == before + 1

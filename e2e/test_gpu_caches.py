"""KV caches in buffers of the page's GPU: they grow in place, programs see dense buffers, and no tensor changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from e2e.conftest import Tab
from kit import moving_caches
from kit.small_models import model
from kit.static_caches import FLOAT, HALF, INT, Graph, concat

WRITE = Graph()
WRITE("ScatterND", "past", "at", "new", to="present")
WRITE("Add", "present", "present", to="twice")
STATIC = model(
    WRITE.nodes,
    [("past", FLOAT, ["p", 3]), ("at", INT, ["s", 1]), ("new", FLOAT, ["s", 3])],
    [("present", FLOAT, None), ("twice", FLOAT, None)],
).SerializeToString()


def grouped(kind: int, items: int | str, size: int) -> bytes:
    """Attention with one head, whose keys and values are its queries."""
    node = helper.make_node(
        "GroupQueryAttention", ["x", "x", "x", "past", "past_v", "last", "total"], ["y", "present", "present_v"],
        domain="com.microsoft", num_heads=1, kv_num_heads=1,
    )  # fmt: skip
    cache = [items, 1, "p", size]
    inputs = [("x", kind, [items, "s", size]), ("past", kind, cache), ("past_v", kind, cache)]
    inputs += [("last", TensorProto.INT32, [items]), ("total", TensorProto.INT32, [])]
    return model([node], inputs, [(name, kind, None) for name in node.output]).SerializeToString()


COUNT = """
  const counts = {};
  const count = (type, name) => {
    const method = type.prototype[name];
    type.prototype[name] = function (...args) {
      const reads = args[2]?.usage & GPUBufferUsage.MAP_READ; // a result is copied to be read
      if (!reads) counts[name] = (counts[name] ?? 0) + 1;
      return method.apply(this, args);
    };
  };
  count(GPUDevice, 'createBuffer'); count(GPUDevice, 'createBindGroup'); count(GPUCommandEncoder, 'copyBufferToBuffer');
  count(GPUDevice, 'createComputePipelineAsync');
"""

RUN = """
  const create = (bytes, where = { present: 'gpu-buffer' }) => ort.InferenceSession.create(
    Uint8Array.from(bytes), { executionProviders: ['webgpu'], preferredOutputLocation: where });
  const { types } = arg;
  const wrong = [];
  const agree = (name, got, want) => { if (got.join() !== want.join()) wrong.push(`${name}: ${got} is not ${want}`); };

  // rows of `width` numbers in two heads; `past` is [1, 2, rows, width], or [2, width, rows] if rows come last
  for (const { bytes, type, width, last } of types) {
    const session = await create(bytes);
    const Data = type === 'float32' ? Float32Array : Float16Array;
    const dims = (rows) => (last ? [2, width, rows] : [1, 2, rows, width]);
    const tensor = (rows, times = 1) => { // each number fills a row; the second head has the next number
      const flat = last ? [0, 1].flatMap((h) => Array(width).fill(0).flatMap(() => rows.map((x) => x + h)))
        : [0, 1].flatMap((h) => rows.flatMap((x) => Array(width).fill(x + h)));
      return new ort.Tensor(type, Data.from(flat, (x) => times * x), dims(rows.length));
    };
    const step = async (past, rows, names) => session.run({ past, new: tensor(rows) }, names);
    const known = [{ present: tensor([]), rows: [] }];
    const random = (n) => (wrong.seed = (wrong.seed ?? 7) * 16807 % 2147483647) % n;
    for (let n = 0; n < 24; n++) {
      const from = known[n % 3 ? known.length - 1 : random(known.length)];
      const rows = [...from.rows, ...Array(random(4)).fill(n + 1)];
      const { present, twice } = await step(from.present, rows.slice(from.rows.length));
      agree(`twice ${n}`, [...twice.data], [...tensor(rows, 2).data]);
      known.push({ present, rows });
      if (n % 7 === 6) known.splice(1, 1)[0].present.dispose();
      if (n % 5 === 4) { // from now on the page's own buffer is fed
        const earlier = known.at(-2);
        const { gpuBuffer } = earlier.present;
        const size = earlier.present.dims.reduce((a, b) => a * b, type === 'float32' ? 4 : 2);
        if (gpuBuffer.size < size || earlier.present.gpuBuffer !== gpuBuffer) wrong.push('gpuBuffer is not dense');
        const device = await ort.env.webgpu.device;
        const whole = Math.ceil(size / 4) * 4;
        if (whole) {
          const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
          const staging = device.createBuffer({ size: whole, usage });
          const encoder = device.createCommandEncoder();
          encoder.copyBufferToBuffer(gpuBuffer, 0, staging, 0, whole);
          device.queue.submit([encoder.finish()]);
          await staging.mapAsync(GPUMapMode.READ);
          const found = new Data(staging.getMappedRange().slice(0, size));
          agree('gpuBuffer', [...found], [...tensor(earlier.rows).data]);
        }
      }
    }
    for (const { present, rows } of known.slice(1)) {
      agree('present', [...await present.getData()], [...tensor(rows).data]);
    }
    for (const { present } of known.slice(1)) present.dispose();

    let past = tensor(Array(300).fill(1));
    const rows = Array(300).fill(1);
    for (let n = 0; n < 20; n++) {
      if (n === 8) for (const name of Object.keys(counts)) delete counts[name];
      const { present } = await step(past, [n], ['present']);
      past.dispose?.();
      past = present;
      rows.push(n);
    }
    if (Object.keys(counts).length) wrong.push(`a token calls ${JSON.stringify(counts)}`);
    agree('after tokens', [...await past.getData()], [...tensor(rows).data]);
    past.dispose();
    if ((await ort.stats()).tensors) wrong.push('tensors are left');
    await session.release();
  }

  // a buffer that is fed and filled is overwritten in place
  const session = await create(arg.still);
  const at = (...n) => new ort.Tensor('int64', BigInt64Array.from(n, BigInt), [n.length, 1]);
  const row = (x) => new ort.Tensor('float32', Float32Array.of(x, x, x), [1, 3]);
  const zero = () => new ort.Tensor('float32', new Float32Array(12), [4, 3]);
  const first = await session.run({ past: zero(), at: at(2), new: row(7) });
  const next = await session.run({ past: first.present, at: at(0), new: row(5) });
  agree('first', [...await first.present.getData()], [0, 0, 0, 0, 0, 0, 7, 7, 7, 0, 0, 0]);
  agree('next', [...await next.present.getData()], [5, 5, 5, 0, 0, 0, 7, 7, 7, 0, 0, 0]);
  const device = await ort.env.webgpu.device;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffer = device.createBuffer({ size: 48, usage });
  const own = ort.Tensor.fromGpuBuffer(buffer, { dataType: 'float32', dims: [4, 3] });
  await session.run({ past: zero(), at: at(3), new: row(1) }, { present: own });
  for (let n = 0; n < 4; n++) await session.run({ past: own, at: at(1), new: row(n) }, { present: own });
  const { twice } = await session.run({ past: own, at: at(0), new: row(9) }, { present: own, twice: null });
  agree('in place', [...twice.data], [18, 18, 18, 6, 6, 6, 0, 0, 0, 2, 2, 2]);
  await session.release();

  // seqlens_k (last) of a single item that is not the last place: the run writes over its past, which is then refused
  const grouped = await create(arg.grouped, { present: 'gpu-buffer', present_v: 'gpu-buffer' });
  const x = (...rows) => {
    const data = Float32Array.from(rows.flatMap((n) => Array(8).fill(n)));
    return new ort.Tensor('float32', data, [1, rows.length, 8]);
  };
  const int32 = (n, dims) => new ort.Tensor('int32', Int32Array.of(n), dims);
  const attend = (rows, { present: past, present_v: past_v }, last, total) => (
    grouped.run({ x: x(...rows), past, past_v, last: int32(last, [1]), total: int32(total, []) }));
  const none = () => new ort.Tensor('float32', new Float32Array(), [1, 1, 0, 8]);
  const start = await attend([1, 2, 3], { present: none(), present_v: none() }, 2, 3);
  const right = await attend([4], start, 3, 4);
  agree('right', [...await start.present.getData()], [...x(1, 2, 3).data]);
  const over = await attend([5], right, 1, 5);
  agree('over', [...await over.present.getData()], [...x(1, 5, 3, 4, 0).data]);
  const refused = (e) => `${e.type} ${/among those of this cache/.test(e.message)}`;
  const kinds = (use) => use.then(() => 'none', refused);
  const uses = [right.present.getData(), attend([6], right, 4, 5), start.present_v.getData()];
  agree('refused', await Promise.all(uses.map(kinds)), Array(3).fill('ExecutionError true'));
  wrong.push(right.present_v.gpuBuffer.size < 128, await kinds(right.present_v.getData()));
  await grouped.release();
  return wrong;
"""


def test_caches_of_a_page(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    types: list[dict[str, Any]] = [
        {"bytes": list(concat(FLOAT)), "type": "float32", "width": 6, "last": False},
        {"bytes": list(concat(HALF, 2, (None, 2, None, 3))), "type": "float16", "width": 3, "last": False},
        {"bytes": list(concat(HALF, 2, (2, 3, None))), "type": "float16", "width": 3, "last": True},
    ]
    found = page.run(COUNT + RUN, {"types": types, "still": list(STATIC), "grouped": list(grouped(FLOAT, 1, 8))})
    assert found == [False, "ExecutionError true"]
    page.forgive("among those of this cache")  # printed, because the page may have used `gpuBuffer` before the check


BATCHES = """
  const wrong = [];
  const stay = { present: 'gpu-buffer', present_v: 'gpu-buffer' };
  let seed = 7;
  const random = (n) => (seed = seed * 16807 % 2147483647) % n;
  for (const { bytes, type, size, lengths } of arg) {
    const create = (provider, where) => ort.InferenceSession.create(
      Uint8Array.from(bytes), { executionProviders: [provider], preferredOutputLocation: where });
    const [gpu, cpu] = [await create('webgpu', stay), await create('wasm', {})];
    const Data = type === 'float32' ? Float32Array : Float16Array;
    const numbers = (length) => Data.from({ length }, () => random(9) - 4);
    const fill = (dims) => new ort.Tensor(type, numbers(dims.reduce((a, b) => a * b)), dims);
    const int32 = (data, dims) => new ort.Tensor('int32', Int32Array.from(data), dims);
    const agree = (name, got, want) => {
      const far = [...got].findIndex((x, n) => !(Math.abs(x - want[n]) < 0.01));
      if (far >= 0) wrong.push(`${type} ${name}: ${got[far]} is not ${want[far]} at ${far}`);
      if (got.length !== want.length) wrong.push(`${type} ${name}: ${got.length} are not ${want.length}`);
    };
    // steps of several tokens continue any earlier present, also from the place before their last keys
    const items = lengths.length;
    const first = [fill([items, 1, 4, size]), fill([items, 1, 4, size])];
    const step = async ({ ours, theirs, n }, tokens, back = 0) => {
      const ends = lengths.map((length) => length + n - back + tokens);
      const [last, total] = [int32(ends.map((end) => end - 1), [items]), int32([Math.max(...ends)], [])];
      const feeds = { x: fill([items, tokens, size]), last, total };
      const run = (session, [past, past_v]) => session.run({ ...feeds, past, past_v });
      const [got, want] = [await run(gpu, ours), await run(cpu, theirs)];
      agree('y', got.y.data, want.y.data);
      return { ours: [got.present, got.present_v], theirs: [want.present, want.present_v], n: n - back + tokens };
    };
    let known = [{ ours: first, theirs: first, n: 0 }];
    for (const tokens of [1, 1, 1, 3, 3]) known.push(await step(known.at(-1), tokens, known.at(-1).n > 1 ? 1 : 0));
    const dispose = ({ ours }) => ours.forEach((tensor) => tensor.dispose());
    for (let n = 0; n < 16; n++) {
      const from = n % 4 ? known.length - 1 : random(known.length);
      if (n % 3 === 0) known.splice(from + 1).forEach(dispose);
      known.push(await step(known[from], n % 5 ? 1 : 3, known[from].n > 1 ? random(2) : 0));
      if (n % 5 === 3) known.at(-2).ours[0].gpuBuffer;
    }
    for (const { ours, theirs } of known.slice(1)) {
      for (const part of [0, 1]) agree('present', await ours[part].getData(), theirs[part].data);
    }
    let last = known[1];
    for (let n = 0; n < 12; n++) {
      if (n === 6) for (const name of Object.keys(counts)) delete counts[name];
      const next = await step(last, 1);
      dispose(last);
      last = next;
    }
    if (Object.keys(counts).length) wrong.push(`a token calls ${JSON.stringify(counts)}`);
    for (const part of [0, 1]) agree('after tokens', await last.ours[part].getData(), last.theirs[part].data);

    // a run that failed may have overwritten its past
    last = await step(last, 1);
    const total = int32([last.theirs[0].dims[2]], []);
    const bad = { x: fill([items, 1, size]), last: int32(lengths.map((_, n) => (n ? 1 : 99)), [items]), total };
    const messages = [];
    await gpu.run({ ...bad, past: last.ours[0], past_v: last.ours[1] }).catch(({ message }) => messages.push(message));
    await last.ours[1].getData().catch(({ message }) => messages.push(message));
    if (!/99 is out/.test(messages[0]) || !/run that failed may/.test(messages[1])) wrong.push(...messages);
    await gpu.release();
  }
  return wrong;
"""


def test_batches_of_a_page(tab: Callable[..., Tab]) -> None:
    """Texts of different lengths, and one text, whose new keys lie among rows of the past."""
    page = tab()
    page.open("/esm.html")
    types = [
        {"bytes": list(grouped(FLOAT, "b", 6)), "type": "float32", "size": 6, "lengths": [4, 1, 3]},
        {"bytes": list(grouped(HALF, "b", 32)), "type": "float16", "size": 32, "lengths": [4, 1, 3]},
        {"bytes": list(grouped(HALF, "b", 8)), "type": "float16", "size": 8, "lengths": [4, 1, 3]},
        {"bytes": list(grouped(FLOAT, "b", 8)), "type": "float32", "size": 8, "lengths": [4]},
    ]
    assert page.run(COUNT + BATCHES, types) == []
    page.forgive("is out of range")


UPLOADS = """
  let written = 0;
  const { writeBuffer } = GPUQueue.prototype;
  GPUQueue.prototype.writeBuffer = function (buffer, at, data, begin = 0, size = data.byteLength - begin) {
    written += size;
    return writeBuffer.call(this, buffer, at, data, begin, size);
  };
  const options = { executionProviders: ['webgpu'], preferredOutputLocation: { twice: 'gpu-buffer' } };
  const session = await ort.InferenceSession.create(Uint8Array.from(arg), options);
  const tensor = (rows, first) => {
    const data = Float32Array.from({ length: 12 * rows }, (_, n) => first + n);
    return new ort.Tensor('float32', data, [1, 2, rows, 6]);
  };
  const found = [];
  for (const [past, fresh] of [[0, 300], [4, 300], [300, 1]]) {
    written = 0;
    const { present, twice } = await session.run({ past: tensor(past, 0), new: tensor(fresh, 1e4) });
    const sums = [...present.data].map((x) => 2 * x);
    found.push([written - 48 * (past + fresh), (await twice.getData()).join() === sums.join(), present.data[0]]);
    twice.dispose();
  }
  await session.release();
  return found;
"""


def test_uploads_of_arrays(tab: Callable[..., Tab]) -> None:
    """Of a cache that is fed as an array, the rows go to the GPU and not the places for new ones, unless these are few.
    More bytes are those of parameters."""
    page = tab()
    page.open("/esm.html")
    found: Any = page.run(UPLOADS, list(concat(FLOAT)))
    assert [each[1:] for each in found] == [[True, 10_000], [True, 0], [True, 0]]
    assert max(more for more, *_ in found) < 1500, found


MOVING = """
  const found = [];
  for (const { bytes, steps } of arg) {
    const stay = { present_k: 'gpu-buffer', present_v: 'gpu-buffer' };
    const options = { executionProviders: ['webgpu'], preferredOutputLocation: stay };
    const session = await ort.InferenceSession.create(Uint8Array.from(bytes), options);
    let [past, y] = [{}, null];
    const made = steps.map(() => ({}));
    for (const [n, feeds] of steps.entries()) {
      const given = Object.fromEntries(Object.entries(feeds).map(([name, { type, data, dims }]) => {
        const Data = type === 'int64' ? BigInt64Array : Float32Array;
        return [name, new ort.Tensor(type, Data.from(data, type === 'int64' ? BigInt : Number), dims)];
      }));
      for (const name of Object.keys(counts)) delete counts[name];
      const { present_k: past_k, present_v: past_v, ...rest } = await session.run({ ...past, ...given });
      Object.assign(made[n], counts);
      Object.values(past).forEach((tensor) => tensor.dispose());
      past = { past_k, past_v };
      y = [...rest.y.data];
    }
    found.push({ made, y, past: [...await past.past_k.getData()] });
    past.past_k.dispose();
    past.past_v.dispose();
    await session.release();
  }
  return found;
"""


def test_caches_that_move(tab: Callable[..., Tab]) -> None:
    """Windows and beams: each token writes the caches by one kernel into buffers of the token before the last."""
    page = tab()
    page.open("/esm.html")
    cases, given, want = moving_caches.CASES, [], []
    for case in cases:
        data, steps = case.model(), case.steps(30)
        theirs, past = onnxruntime.InferenceSession(data), {}
        for feeds in steps:
            y, *presents = theirs.run(None, {**past, **feeds})
            past = dict(zip(("past_k", "past_v"), presents, strict=True))
        want.append((y, past["past_k"]))
        given.append({"bytes": list(data), "steps": [{n: plain(x) for n, x in feeds.items()} for feeds in steps]})
    found: Any = page.run(COUNT + MOVING, given)
    for case, each, (y, past_k) in zip(cases, found, want, strict=True):
        np.testing.assert_allclose(each["y"], y.ravel(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(each["past"], past_k.ravel(), rtol=1e-6)
        # a full window makes nothing; beams, whose caches grow, when a size of buffers no longer suffices
        made = [n for n, counts in enumerate(each["made"]) if counts and n > 8]
        assert len(made) <= (3 if case.what == "beams" else 0), (case, made)


def plain(x: np.ndarray) -> dict[str, Any]:
    return {"type": "int64" if x.dtype == np.int64 else "float32", "data": x.ravel().tolist(), "dims": list(x.shape)}


# Some kernels run on the CPU, because the driver refuses their shaders: the caches of the others stay on the GPU. The
# shaders that copy rows of caches belong to no node: without them the session leaves the GPU.
MIXED = """
  const make = GPUDevice.prototype.createShaderModule;
  const refuse = (part) => {
    GPUDevice.prototype.createShaderModule = function (how) {
      return make.call(this, part && how.label?.includes(part) ? { ...how, code: 'nonsense' } : how);
    };
  };
  const flat = async (tensor) => Array.from(await tensor.getData(), Number);
  const arrays = { float32: Float32Array, int64: BigInt64Array, uint8: Uint8Array };
  const write = async (session, { type, width }) => {
    const texts = [];
    const tensor = (rows) => {
      const data = rows.flatMap((x) => Array(width).fill(type === 'int64' ? BigInt(x) : x));
      return new ort.Tensor(type, arrays[type].from([...data, ...data]), [1, 2, rows.length, width]);
    };
    const x = new ort.Tensor('float32', new Float32Array(8 * 512).fill(1), [8, 512]);
    let past = tensor([]);
    for (const [n, rows] of [3, 1, 2, 70, 1].entries()) {
      const { y, present } = await session.run({ x, past, new: tensor(Array(rows).fill(n + 1)) });
      texts.push([Math.round(y.data.at(-1)), present.dims.join(), (await flat(present)).join()]);
      past = present;
    }
    return JSON.stringify(texts);
  };
  const found = [];
  for (const each of arg) {
    const bytes = Uint8Array.from(each.bytes);
    const right = await ort.InferenceSession.create(bytes, { executionProviders: ['wasm'] });
    const wanted = await write(right, each);
    await right.release();
    for (const part of ['append', 'total', 'rows']) {
      refuse(part);
      const adapter = await navigator.gpu.requestAdapter();
      const device = await adapter.requestDevice(); // without compiled shaders
      const executionProviders = [{ name: 'webgpu', device }, 'wasm'];
      const options = { executionProviders, preferredOutputLocation: { present: 'gpu-buffer' } };
      const session = await ort.InferenceSession.create(bytes, options);
      const agrees = await write(session, each) === wanted;
      const { moved } = await session.explain();
      await session.release();
      device.destroy();
      found.push([each.type, part, agrees, moved.length]);
    }
  }
  return found;
"""
ELEMENTS = {
    "float32": (FLOAT, 8),
    "int64": (INT, 8),
    "uint8": (TensorProto.UINT8, 3),
}  # uint8: rows that begin within a word


def with_reader(kind: int, width: int) -> bytes:
    """A cache that grows, and a node that reads all of it, between products that make the GPU worthwhile."""
    weight = np.full((512, 512), 1 / 512, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Concat", ["past", "new"], ["present"], name="append", axis=2),
        helper.make_node("Cast", ["present"], ["numbers"], name="total", to=FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["sum"], name="total of all", keepdims=0),
        helper.make_node("Add", ["a", "sum"], ["b"], name="both"),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="last"),
    ]
    inputs = [("x", FLOAT, [8, 512]), ("past", kind, [1, 2, "p", width]), ("new", kind, [1, 2, "s", width])]
    outputs = [("present", kind, [1, 2, "t", width]), ("y", FLOAT, [8, 512])]
    return model(nodes, inputs, outputs, {"w": weight}).SerializeToString()


def test_caches_whose_readers_or_writers_run_on_the_cpu(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    given = [{"bytes": list(with_reader(*each)), "type": name, "width": each[1]} for name, each in ELEMENTS.items()]
    found: Any = page.run(MIXED, given)
    assert len(found) == 3 * len(given)
    for type_, part, agrees, moved in found:
        assert agrees and moved, (type_, part, agrees, moved)

"""Models on WebGPU in Chromium (SwiftShader): right, and wholly there; what is fed, kept and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from playwright.sync_api import Browser

from e2e.conftest import Tab
from e2e.test_page_gpu import COUNT, OPEN
from kit import attention_cases, byte_products, low_bits, zoo
from kit.chromium import Engine
from kit.conformance.cases import load
from kit.conformance.chromium import run
from kit.conformance.compare import assert_equal
from kit.conformance.failing import passing
from kit.conformance.runner import wholly
from kit.gpu import GPU_IN_PAGES
from kit.models import MODELS, silero, silero_path
from kit.overflows import CASES
from pyruntime import InferenceSession
from pyruntime.cli.serve import Server

NAMES = "digits squeezenet mobilenet_v2 bert_tiny gpt2_tiny llama_mini unet_resize vit_tiny".split()
NAMES += "llama_mini.fp16 whisper_tiny_encoder".split()  # half floats in pairs; a large model, nightly


@pytest.fixture(scope="module")
def gpu(browser: Browser, servers: dict[str, Server]) -> Iterator[Engine]:
    context = browser.new_context()
    yield Engine(context.new_page(), servers["isolated"].url)
    context.close()


def test_a_batcher_reads_outputs_on_the_gpu(tab: Callable[..., Tab]) -> None:
    """Requests that share a run get rows in the CPU's memory, also if the session leaves its outputs on the GPU."""
    page = tab()
    page.open("/esm.html")
    found = page.run("""
      const { Batcher } = await import('/dist/extras.mjs');
      const session = await ort.InferenceSession.create('/models/affine.onnx', {
        executionProviders: [{ name: 'webgpu', allowSoftware: true }], preferredOutputLocation: 'gpu-buffer',
      });
      const { name, shape } = session.inputMetadata[0];
      const row = (value) => new ort.Tensor('float32', new Float32Array(shape[1]).fill(value), [1, shape[1]]);
      const batcher = new Batcher(session, { size: 4, wait: 1000 });
      const outputs = await Promise.all([1, 2, 3, 4].map((value) => batcher.run({ [name]: row(value) })));
      const alone = await Promise.all([1, 2, 3, 4].map(async (value) => {
        const [y] = Object.values(await session.run({ [name]: row(value) }));
        return [...await y.getData(true)];
      }));
      const together = outputs.map((output) => [...Object.values(output)[0].data]);
      await batcher.close();
      await session.release();
      return { together, alone };
    """)
    assert found["together"] == found["alone"] and len(found["alone"][0]) > 0


@pytest.mark.parametrize("name", NAMES)
def test_model(name: str, gpu: Engine) -> None:
    """Every kernel on the GPU, no crossing between input and output."""
    model = MODELS[name]
    session = gpu.open(model.path(), executionProviders=["webgpu"])
    try:
        model.check(session.run(None, model.feeds()))
        assert wholly(session.explain(), "webgpu")
    finally:
        session.release()


def test_half_floats_do_not_overflow(gpu: Engine) -> None:
    """SwiftShader has no shader-f16: half floats are packed in words, and kernels keep the same values in float32."""
    for case in CASES:
        session = gpu.open(case.model(half=True), executionProviders=["webgpu"])
        (got,) = session.run(None, case.feeds())
        session.release()
        case.check(got)


def test_attention_in_one_kernel(gpu: Engine) -> None:
    """Decoders with keys that end within a block and at its edge."""
    for case in (c for c in attention_cases.CASES if c.past):
        choices = {"attention": {"": "split_below_128"}}
        session = gpu.open(case.model(half=case.capped), executionProviders=["webgpu"], choices=choices)
        for feeds in case.feeds(case.capped, ((0, 1), (511, 1), (512, 5))):
            (got,) = session.run(None, feeds)
            case.check(feeds, got)
        session.release()


def test_attention_of_tokens_and_prompts(gpu: Engine) -> None:
    """SwiftShader computes a token's attention in one kernel, that of a prompt in three."""
    case = attention_cases.CASES[2]
    session = gpu.open(case.model(half=False), executionProviders=["webgpu"])
    for feeds in case.feeds(False, ((511, 1), (0, 70), (70, 1))):
        case.check(feeds, session.run(None, feeds)[0])
    session.release()


def test_weights_of_few_bits(gpu: Engine) -> None:
    for case in low_bits.CASES:
        data, weights = case.build()
        session = gpu.open(data, executionProviders=["webgpu"])
        for x in (case.feed(1), case.feed(33)):
            case.check(session.run(None, {"x": x})[0], x, weights)
        session.release()


def test_rows_rounded_to_bytes(gpu: Engine) -> None:
    for case in byte_products.CASES:
        data, weights = case.build()
        session = gpu.open(data, executionProviders=["webgpu"])
        for x in map(case.feed, (1, byte_products.FEW + 1, 33)):
            case.check(session.run(None, {"x": x})[0], x, weights)
        session.release()


def test_few_rows_on_gpus(gpu: Engine) -> None:
    """Programs for GPUs have a kernel of their own for products of few rows, with and without subgroups."""
    for assume in ([], ["subgroups"]):
        data, weights = low_bits.ROWS[0].build()
        program = InferenceSession(data).export(weights=True, providers=["webgpu"], assume=assume)
        session = gpu.open(program, executionProviders=[GPU_IN_PAGES])
        for x in map(low_bits.ROWS[0].feed, (1, 4, 5)):
            low_bits.ROWS[0].check(session.run(None, {"x": x})[0], x, weights)
        session.release()


def test_providers(gpu: Engine) -> None:
    """With wasm in the list only what pays is on the GPU: nothing of a model this small; explain says why."""
    model = MODELS["digits"]
    session = gpu.open(model.path(), executionProviders=[GPU_IN_PAGES, "wasm"])
    model.check(session.run(None, model.feeds()))
    found = session.explain()
    session.release()
    assert all(node["why"] for node in found["nodes"] if node["place"] == "wasm")


@pytest.mark.parametrize(
    ("providers", "used"),
    [(["webgpu", "wasm"], ["wasm"]), (["webgpu", "cpu"], ["wasm"]), (["webgpu"], ["webgpu"]),
     ([GPU_IN_PAGES, "wasm"], ["webgpu", "wasm"])],
    ids=str,
)  # fmt: skip
def test_software_adapter(providers: list[Any], used: list[str], gpu: Engine) -> None:
    """An adapter that computes on the CPU counts if the session allows it or names no other provider."""
    model = MODELS["digits"]
    session = gpu.open(model.path(), executionProviders=providers)
    model.check(session.run(None, model.feeds()))
    found = session.explain()["providers"]
    session.release()
    assert found["used"] == used and ("computes on the CPU" in found["why"]) == ("webgpu" not in used)


@pytest.mark.parametrize("op", ["Sum", "Prod", "Max", "Min"])
@pytest.mark.parametrize("size", [4096, 5003])
def test_reductions_by_subgroups(op: str, size: int, gpu: Engine) -> None:
    """Of four invocations there, of eight where tests/webgpu runs."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g (float[3, {size}] x) => (float[3] y)
        {{ y = Reduce{op} <keepdims: int = 0> (x, axes) }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axes"))
    x = np.random.default_rng(size).choice(np.array([1, 1, -1], np.float32), (3, size))
    if op in ("Max", "Min"):
        x[1, size // 2] = np.nan
    session = gpu.open(model.SerializeToString(), executionProviders=["webgpu"])
    (found,) = session.run(None, {"x": x})
    session.release()
    np.testing.assert_array_equal(found, getattr(np, op.lower())(x, axis=1))


def test_silero(gpu: Engine) -> None:
    """Its real weights: an If decided at run time, an LSTM. (onnxruntime-web's WebGPU gets it wrong.)"""
    session = gpu.open(silero_path(), executionProviders=["webgpu"])
    expected = silero(zoo.oracle_session(silero_path().read_bytes()), count=30)
    actual = silero(session, count=30)
    session.release()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4)


def test_conformance(gpu: Engine) -> None:
    """Official cases: every sixtieth of those that pass on wasm (all: make conformance PROVIDER=webgpu)."""
    cases = load()
    for case in map(cases.__getitem__, passing("webgpu.chromium")[::60]):
        for feeds, expected in case.data:
            assert_equal(expected, run(gpu, "webgpu", case.model, feeds)[0], case.rtol, case.atol, case.name)


# ── tensors that stay on the GPU ─────────────────────────────────────────────────────────────────────────────────────

STEPS = 24  # tokens: beyond a tile of sixteen
FAULT_BYTES = 16  # a run whose indices are checked reads its fault record with its outputs (docs/adr)

COUNT_READS = """() => {
  const map = GPUBuffer.prototype.mapAsync;
  globalThis.bytesRead = 0;
  GPUBuffer.prototype.mapAsync = function (mode, offset = 0, size = this.size - offset) {
    globalThis.bytesRead += size;
    return map.call(this, mode, offset, size);
  };
}"""

GENERATE = """
  const session = await ort.InferenceSession.create('/zoo/llama_mini.onnx', {
    executionProviders: ['webgpu'],
    preferredOutputLocation: { logits: 'cpu', ...Object.fromEntries(arg.outputs.map((name) => [name, 'gpu-buffer'])) },
  });
  const whole = (values) => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
  let past = {};
  for (const name of arg.inputs) past[name] = new ort.Tensor('float32', new Float32Array(0), [1, 2, 0, 32]);
  const tokens = [];
  let token = 1, last = null;
  for (let step = 0; step < arg.steps; step++) {
    const attention_mask = whole(new Array(step + 1).fill(1));
    const feeds = { input_ids: whole([token]), position_ids: whole([step]), attention_mask, ...past };
    const { logits, ...present } = await session.run(feeds);
    if (Object.values(present).some(({ location }) => location !== 'gpu-buffer')) throw new Error('a cache came back');
    for (const tensor of Object.values(past)) tensor.dispose();
    past = {};
    for (const name of arg.outputs) past[name.replace('present', 'past_key_values')] = present[name];
    last = Array.from(logits.data);
    token = last.indexOf(Math.max(...last));
    tokens.push(token);
  }
  const live = (await ort.stats()).tensors;
  for (const tensor of Object.values(past)) tensor.dispose();
  const left = (await ort.stats()).tensors;
  await session.release();
  return { tokens, last, live, left };
"""


def generate(steps: int, layers: int) -> tuple[list[int], np.ndarray]:
    """The same with onnxruntime."""
    session = zoo.oracle_session(zoo.materialize("llama_mini").read_bytes())
    names = [f"{n}.{kind}" for n in range(layers) for kind in ("key", "value")]
    past = {f"past_key_values.{name}": np.zeros((1, 2, 0, 32), np.float32) for name in names}
    tokens, token = [], 1
    for step in range(steps):
        feeds: dict[str, Any] = {"input_ids": np.array([[token]]), "position_ids": np.array([[step]])}
        logits, *present = session.run(None, feeds | {"attention_mask": np.ones((1, step + 1), np.int64)} | past)
        past = dict(zip(past, present, strict=True))
        token = int(logits.argmax())
        tokens.append(token)
    return tokens, logits.ravel()


def test_cache_stays_on_the_gpu(tab: Any) -> None:
    """Tokens with the key and value cache on the GPU: nothing but the logits and the fault record is read back."""
    made: Tab = tab()
    page = made.open("/esm.html")
    zoo.materialize("llama_mini")
    page.evaluate(COUNT_READS)
    names = [f"{n}.{kind}" for n in range(4) for kind in ("key", "value")]
    inputs, outputs = [[f"{prefix}.{name}" for name in names] for prefix in ("past_key_values", "present")]
    found: Any = made.run(GENERATE, {"inputs": inputs, "outputs": outputs, "steps": STEPS})
    tokens, logits = generate(STEPS, 4)
    assert found["tokens"] == tokens
    np.testing.assert_allclose(found["last"], logits, rtol=1e-3, atol=1e-3)
    assert page.evaluate("bytesRead") == STEPS * (4096 * 4 + FAULT_BYTES)
    assert found["live"] == 8 and found["left"] == 0


def test_tensors(tab: Any) -> None:
    """Read back, fed to another session, filled in place, refused with reasons."""
    made: Tab = tab()
    made.open("/esm.html")
    found: Any = made.run("""
      const options = { executionProviders: ['webgpu'], preferredOutputLocation: 'gpu-buffer' };
      const tensor = (k) => new ort.Tensor('float32', Float32Array.from([1, 2, 3, 4, 5, k]), [2, 3]);
      const reason = (action) => Promise.resolve().then(action).then(() => '', (e) => `${e.type}: ${e.message}`);
      const gpu = await ort.InferenceSession.create('/models/add.onnx', options);
      const cpu = await ort.InferenceSession.create('/models/add.onnx');
      const { c, d } = await gpu.run({ a: tensor(6), b: tensor(10) });
      const out = { location: c.location, buffer: c.gpuBuffer.size, data: await reason(() => c.data) };
      const again = await gpu.run({ a: c, b: d });
      out.again = Array.from(await again.c.getData());
      const home = await cpu.run({ a: c, b: d });
      out.home = [home.c.location, ...home.c.data];
      const filled = await gpu.run({ a: c, b: c }, { c: d });
      out.filled = [filled.c === d, ...(await d.getData())];
      out.read = Array.from(await c.getData(true));
      const types = await ort.InferenceSession.create('/models/types.onnx', options);
      const i = new ort.Tensor('int64', [1n, -2n, 3n], [3]), p = new ort.Tensor('bool', [true, false], [2]);
      const { n, t } = await types.run({ i, p });
      out.types = [n.type, ...Array.from(await n.getData(), String), t.type, ...(await t.getData())];
      const wide = new ort.Tensor('int64', [1n, -2n, 2n ** 40n], [3]);
      out.wide = Array.from(await (await types.run({ i: wide, p })).n.getData(), String);
      const foreign = ort.Tensor.fromGpuBuffer({}, { dataType: 'float32', dims: [2, 3] });
      out.foreign = await reason(() => gpu.run({ a: foreign, b: foreign }));
      const { c: gone } = await gpu.run({ a: tensor(6), b: tensor(10) });
      out.memory = await gpu.memory();
      return out;
    """)
    assert found["location"] == "gpu-buffer"
    assert found["buffer"] >= 24 and "getData" in found["data"]
    assert found["again"] == [2, 4, 6, 8, 10, 12]
    assert found["home"] == ["cpu", 2, 4, 6, 8, 10, 12]
    assert found["filled"] == [True, 4, 8, 12, 16, 20, 32]
    assert found["read"] == [2, 4, 6, 8, 10, 16]
    assert found["types"] == ["int64", "2", "-4", "6", "bool", 0, 1]
    assert found["wide"] == ["2", "-4", str(2**41)]  # made on the CPU
    assert found["foreign"].startswith("InvalidInput") and "not a GPUBuffer" in found["foreign"]
    assert found["memory"]["gpu"] > 0 and found["memory"]["tensors"] > 0


def test_kernels_use_the_buffers_of_the_page(tab: Any) -> None:
    """From run to run feeds and outputs lie in other buffers, or in linear memory, or an output where a feed lies. What
    was made before stays as it is; copied is only what lies where kernels cannot use it."""
    made: Tab = tab()
    made.open("/esm.html").evaluate(COUNT)
    found = made.run(
        OPEN
        + """
        const session = await add(kept);
        const device = await ort.env.webgpu.device;
        const of = (k, usage) => wrap(filled(device, Float32Array.of(k, 2, 3, 4, 5, 6), usage));
        const [one, two, both, plain] = [of(1), of(2), of(9), of(3, GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST)];
        const feeds = [
          [one, two], [two, one], [six, two], [two, two], [one, plain], [one, two], [plain, six], [six, six],
          [one, both],
        ];
        const copies = [], made = [];
        await session.run({ a: six, b: two }); // gives the session its memory
        for (const [a, b] of feeds) {
          const before = crossed.copied;
          made.push(await session.run({ a, b }, b === both ? { c: both, d: plain } : undefined));
          copies.push(crossed.copied - before);
        }
        const first = async (tensor) => (await tensor.getData(true))[0];
        const read = async (buffer) => first((await session.run({ a: wrap(buffer), b: cpu(0, 0, 0, 0, 0, 0) })).c);
        const last = made.pop();
        const values = await Promise.all(made.map(async ({ c, d }) => [await first(c), await first(d)]));
        return [values, [last.c === both, await read(both.gpuBuffer), await read(plain.gpuBuffer)], copies];
        """
    )
    values = [[3, -1], [3, 1], [3, -1], [4, 0], [4, -2], [3, -1], [4, 2], [2, 0]]
    assert found == [values, [True, 10, -8], [0, 0, 0, 48, 24, 0, 24, 0, 96]]

"""Runs and sessions that a page stops: by signals and by `terminate`, in pages with and without shared memory."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from e2e.conftest import Tab
from kit.gpu import GPU_IN_PAGES

pytestmark = pytest.mark.alone

AT_ONCE = 100  # milliseconds
SOON = 1500  # milliseconds: some 30 are seen on a quiet machine; what is stopped takes ten seconds and more
KINDS = [("isolated", 1), ("isolated", 2), ("plain", 1)]  # pages, and threads in them
MODELS = {
    "a product": "g (float[n, n] x) => (float[n, n] y) { a = MatMul (x, x)  b = MatMul (a, x)  y = MatMul (b, x) }",
    "a loop without an end": """g (float[n, n] x) => (float[n, n] y) {
       y = Loop (, true, x) <body = b (int64 i, bool c, float[n, n] v) => (bool d, float[n, n] w) {
         d = Identity (c)  z = NonZero (v)  k = Size (z)  f = Cast <to = 1> (k)  w = Div (v, f) }>
     }""",
    "a loop that data end": """g (float[n, n] x) => (float[n, n] y, int64[k] z) {
       most = Constant <value = int64 {2000000000}> ()  half = Constant <value = int64 {1000000000}> ()
       y, z = Loop (most, true, x) <body = b (int64 i, bool c, float[n, n] v) => (bool d, float[n, n] w, int64 j) {
         d = Less (i, half)  w = Sin (v)  j = Identity (i) }>
     }""",
    "a loop of many steps": """g (float[n, n] x) => (float[n, n] y) {
       most = Constant <value = int64 {2000000000}> ()
       y = Loop (most, , x) <body = b (int64 i, bool c, float[n, n] v) => (bool d, float[n, n] w) {
         d = Identity (c)  w = Sin (v) }>
     }""",
    "a procedure": """g (float[n, n] x) => (float[n, n] y) {
       i = CumSum (x, axis)  n = Shape <end = 1> (i)  y, k = TopK <axis = 0> (i, n) }""",
}
# n: products of 160 GFLOP
ENDLESS = {
    "a product": 3000, "a loop without an end": 64, "a loop that data end": 64, "a loop of many steps": 64,
    "a procedure": 4500,
}  # fmt: skip
TOOLS = """
  const { Tensor, Terminated, InferenceSession } = ort;
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const open = (model, options) => InferenceSession.create(bytes(model), options);
  const square = (n) => new Tensor('float32', new Float32Array(n * n).fill(1 / n), [n, n]);
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const told = async (promise) => { // its error, and when it came
    const error = await promise.then(() => null, (reason) => reason);
    const at = performance.now();
    return { typed: error instanceof Terminated, name: error?.name, message: error?.message, cause: error?.cause, at };
  };
  const settled = async () => { // stats, once what is on its way has arrived
    await sleep(100);
    return ort.stats();
  };
"""
RUNS = """
  ort.env.wasm.proxy = true; // in the page a run is over before it could be stopped
  const session = await open(arg.model, { intraOpNumThreads: arg.threads, executionProviders: arg.providers });
  const small = { x: square(4) };
  const endless = { x: square(arg.n) };
  if (!arg.loops) for (let k = 0; k < 60; k++) await session.run(small); // the first fifty run on one thread
  const stopped = async (options, stop) => {
    const into = { y: square(arg.n) }; // a run that fills a tensor rejects when it has ended
    const run = told(session.run(endless, into, options));
    await sleep(400);
    const start = performance.now();
    stop();
    const error = await run;
    return { ...error, cause: error.cause === options.signal?.reason, took: error.at - start };
  };
  const byTerminate = async () => {
    const options = { terminate: false };
    return stopped(options, () => { options.terminate = true; });
  };
  const bySignal = async () => {
    const controller = new AbortController();
    return stopped({ signal: controller.signal }, () => controller.abort());
  };
  const before = await settled();
  const found = [];
  for (let k = 0; k < 2; k++) found.push(await bySignal(), await byTerminate());
  found.push(await stopped({ signal: AbortSignal.timeout(300) }, () => {}));
  const after = await settled();
  const again = arg.loops ? 0 : (await session.run(small)).y.data[3];
  await session.release();
  return { found, before, after, again, end: await settled() };
"""


def parsed(text: str) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    for name, value in (("true", np.array(True)), ("axis", np.array(0))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return model.SerializeToString()


def encoded(model: bytes) -> str:
    return base64.b64encode(model).decode()


@pytest.mark.parametrize(("kind", "threads"), KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_runs(name: str, kind: str, threads: int, tab: Callable[..., Tab]) -> None:
    """Within a kernel, again and again; the session goes on and holds no more than before."""
    page = tab(kind)
    page.open("/esm.html")
    loops = "loop" in name
    arg = {"model": encoded(parsed(MODELS[name])), "n": ENDLESS[name], "threads": threads, "loops": loops}
    arg["providers"] = ["wasm"]
    result: Any = page.run(TOOLS + RUNS, arg)
    names = ["AbortError", "Terminated"] * 2 + ["TimeoutError"]
    for error, expected in zip(result["found"], names, strict=True):
        print(f"{name}, {kind}, {threads} threads: {expected} after {error['took']:.0f} ms")
        assert error["typed"] and error["name"] == expected and error["cause"]
        assert error["took"] < SOON
    if not loops:
        assert result["again"] == pytest.approx(1 if name == "a procedure" else 0.25)
    assert {**result["after"], "arenas": 0} == {**result["before"], "arenas": 0}
    assert result["end"]["sessions"] == result["end"]["arenas"] == result["end"]["teams"] == 0


@pytest.mark.parametrize("provider", ["wasm", GPU_IN_PAGES])
def test_a_million_steps_stop_at_once(provider: Any, tab: Callable[..., Tab]) -> None:
    """The quickest of five stops: other work delays some of them."""
    page = tab()
    page.open("/esm.html")
    model = MODELS["a loop of many steps"].replace("2000000000", "1000000")
    arg = {"model": encoded(parsed(model)), "n": 128, "threads": 1, "loops": True, "providers": [provider]}
    result: Any = page.run(TOOLS + RUNS, arg)
    assert [error["name"] for error in result["found"]] == ["AbortError", "Terminated"] * 2 + ["TimeoutError"]
    assert min(error["took"] for error in result["found"][:4]) < AT_ONCE


QUEUED = """
  const { sessions } = await ort.stats();
  const session = await open(arg);
  const x = square(700);
  const aborted = AbortSignal.abort(new TypeError('mine'));
  const refused = [
    await told(session.run({ x }, { signal: aborted })),
    await told(session.run({ x }, { terminate: true })),
    await told(session.run({ x }, ['y'], { signal: aborted })),
    await told(open(arg, { signal: aborted })),
    await session.run({ x }, ['y'], { signal: 'now' }).catch((error) => ({ name: error.name })),
    await session.run({ x }, ['y'], 3).catch((error) => ({ name: error.name })),
  ];
  const controllers = [0, 1, 2].map(() => new AbortController());
  const runs = controllers.map(({ signal }) => told(session.run({ x }, { signal })));
  controllers[1].abort();
  const queued = await Promise.all(runs);
  const order = [];
  const third = new AbortController();
  const long = session.run({ x: square(1500) }).then(() => order.push('long'));
  const waits = told(session.run({ x }, { signal: third.signal })).then(({ name }) => order.push(name));
  third.abort();
  await Promise.all([long, waits]);
  const into = new Tensor('float32', new Float32Array(16), [4, 4]);
  const { y } = await session.run({ x: square(4) }, { y: into }, { signal: controllers[2].signal, terminate: false });
  controllers[2].abort(); // too late
  await session.release();
  const names = [refused, queued].map((all) => all.map(({ name }) => name ?? ''));
  return [...names, order, y === into && into.data[0], (await settled()).sessions - sessions];
"""


def test_what_is_refused_or_waits_for_its_turn(page: Tab) -> None:
    refused, queued, order, value, sessions = page.run(TOOLS + QUEUED, encoded(parsed(MODELS["a product"])))  # type: ignore[misc]
    assert refused == ["TypeError", "Terminated", "TypeError", "TypeError", "InvalidInput", "InvalidInput"]
    assert queued == ["", "AbortError", ""]
    assert order == ["AbortError", "long"]
    assert value == pytest.approx(0.25)
    assert sessions <= 0  # none is left; sessions of earlier tests may end meanwhile


PAGE = """
  ort.env.wasm.proxy = false;
  const session = await ort.InferenceSession.create('/models/affine.onnx', { executionProviders: ['wasm'] });
  const x = new Tensor('float32', new Float32Array(8), [2, 4]);
  for (let k = 0; k < 2000 && !(await session.memory()).page; k++) await session.run({ x }, {});
  const { page } = await session.memory();
  const controller = new AbortController();
  const run = told(session.run({ x }, { signal: controller.signal }));
  controller.abort(); // it has run by now
  const names = [(await run).name, (await told(session.run({ x }, { signal: controller.signal }))).name];
  const { y } = await session.run({ x }, { terminate: false });
  await session.release();
  return [page > 0, names, y.dims.join()];
"""


def test_short_programs_in_the_page(page: Tab) -> None:
    assert page.run(TOOLS + PAGE) == [True, ["AbortError", "AbortError"], "2,3"]


CREATE = """
  await (await open(arg.small)).release(); // the engine is started
  const before = await settled();
  const controller = new AbortController();
  let compiling = false;
  const onProgress = ({ phase, loaded }) => { compiling ||= phase === 'compile' && !loaded; };
  const creating = told(open(arg.large, { signal: controller.signal, onProgress }));
  const other = open(arg.small); // in line behind it
  while (!compiling) await sleep(5);
  await sleep(300);
  const start = performance.now();
  controller.abort();
  const error = await creating;
  const session = await other;
  const usable = performance.now() - start;
  const { y } = await session.run({ x: square(4) });
  await session.release();
  const after = await settled();
  return { ...error, cause: 0, took: error.at - start, usable, value: y.data[0], before, after };
"""


def large() -> bytes:
    """Thousands of products, which take seconds to compile."""
    lines = "".join(f"t{i + 1} = MatMul (t{i}, x)  " for i in range(3000))
    return parsed("g (float[n, n] x) => (float[n, n] y) { t0 = Sin (x) " + lines + "y = Cos (t3000) }")


@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_create_while_python_compiles(kind: str, tab: Callable[..., Tab]) -> None:
    """It rejects at once. With shared memory Python stops too; without it what it makes is released."""
    page = tab(kind)
    page.open("/esm.html")
    arg = {"small": encoded(parsed(MODELS["a product"])), "large": encoded(large())}
    found: Any = page.run(TOOLS + CREATE, arg)
    print(f"create, {kind}: rejected after {found['took']:.0f} ms, others go on after {found['usable']:.0f} ms")
    assert found["typed"] and found["name"] == "AbortError" and "creation of the session" in found["message"]
    assert found["took"] < (200 if kind == "plain" else SOON)
    assert found["usable"] < (60_000 if kind == "plain" else SOON)
    assert found["value"] == pytest.approx(0.25)
    kept = [{key: stats[key] for key in ("sessions", "arenas", "teams")} for stats in (found["before"], found["after"])]
    assert kept[0] == kept[1]


TEXT = """
  const session = await open(arg.model, arg.options);
  const texts = (count) => ({ x: new Tensor('string', Array(count).fill('ab'.repeat(200)), [count]) });
  await session.run(texts(2));
  const controller = new AbortController();
  const into = arg.options.preferredOutputLocation ? ['y'] : { y: new Tensor('bool', new Uint8Array(20000), [20000]) };
  const run = told(session.run(texts(20000), into, { signal: controller.signal }));
  await sleep(1500);
  const start = performance.now();
  controller.abort();
  const error = await run;
  const { y } = await session.run(texts(2));
  return [error.name, error.at - start, [...(await y.getData())]];
"""


@pytest.mark.parametrize("place", ["worker", "page"])
def test_a_step_in_python(tab: Callable[..., Tab], place: str) -> None:
    """Regular expressions on 8 MB of text, where Python can be interrupted; of a session on the page's GPU, too."""
    page = tab()
    page.open("/esm.html")
    model = parsed('g (string[n] x) => (bool[n] y) { y = RegexFullMatch <pattern = "(a|b|ab)*c"> (x) }')
    options = {"executionProviders": ["webgpu"], "preferredOutputLocation": "gpu-buffer"} if place == "page" else {}
    name, took, values = page.run(TOOLS + TEXT, {"model": encoded(model), "options": options})  # type: ignore[misc]
    print(f"a step in Python: {name} after {took:.0f} ms")
    assert name == "AbortError" and took < SOON and values == [0, 0]


DOWNLOAD = """
  const { sessions } = await ort.stats();
  const controller = new AbortController();
  const creating = told(InferenceSession.create('/models/slow.onnx', { signal: controller.signal }));
  await sleep(400);
  controller.abort();
  return [(await creating).name, (await settled()).sessions - sessions];
"""


def test_create_while_the_model_is_fetched(page: Tab) -> None:
    """The download ends."""
    failed: list[str] = []
    context = page.page.context
    context.on("requestfailed", lambda request: failed.append(request.url))
    context.route("**/slow.onnx", lambda route: None)  # never answered
    try:
        name, sessions = page.run(TOOLS + DOWNLOAD)  # type: ignore[misc]
        assert name == "AbortError" and sessions <= 0  # those of tests before may end meanwhile
        assert any(url.endswith("/slow.onnx") for url in failed)
    finally:
        context.unroute("**/slow.onnx")


GPU = """
  const session = await open(arg.model, { executionProviders: ['webgpu'], ...arg.options });
  const { placement } = await session.explain();
  const small = { x: square(4) };
  await session.run(small);
  const before = await settled();
  const took = [];
  for (let k = 0; k < arg.times; k++) {
    const controller = new AbortController();
    const into = arg.options.preferredOutputLocation ? ['y'] : { y: square(arg.n) };
    const run = told(session.run({ x: square(arg.n) }, into, { signal: controller.signal }));
    await sleep(500);
    const start = performance.now();
    controller.abort();
    const error = await run;
    took.push([error.name, error.at - start]);
  }
  const { y } = await session.run(small, { signal: new AbortController().signal });
  const value = (await y.getData(true))[0];
  const after = await settled();
  console.log = () => {};
  const kernels = JSON.parse(session.endProfiling() || '[]').filter(({ cat }) => cat === 'Node').length;
  await session.release();
  return { took, placement, value, kernels, tensors: [before.tensors, after.tensors] };
"""


PRODUCTS = f"""g (float[n, n] x) => (float[n, n] y) {{
    t0 = Identity (x)  {"".join(f"t{i + 1} = MatMul (t{i}, x)  " for i in range(200))} y = Identity (t200)
}}"""
STEPS = """g (float[n, n] x) => (float[n, n] y) <int64 steps = {500000}> {
    y = Loop (steps, , x) <body = b (int64 i, bool c, float[n, n] v) => (bool d, float[n, n] w) {
        d = Identity (c)  s = Sqrt (v)  w = Mul (s, s)
    }>
}"""


@pytest.mark.parametrize(
    ("place", "timed", "text", "kernels"),
    [("worker", False, PRODUCTS, 200), ("page", True, PRODUCTS, 200), ("worker", False, STEPS, 1)],
)
def test_runs_on_the_gpu(tab: Callable[..., Tab], place: str, timed: bool, text: str, kernels: int) -> None:
    """STEPS is one procedure, whose dispatches are ranges of its steps."""
    page = tab()
    page.open("/esm.html")
    options = {"enableProfiling": timed, **({"preferredOutputLocation": "gpu-buffer"} if place == "page" else {})}
    arg = {"model": encoded(parsed(text)), "n": 320, "options": options, "times": 1 if timed else 2}
    found: Any = page.run(TOOLS + GPU, arg)
    assert found["placement"]["webgpu"] >= kernels
    for name, took in found["took"]:
        print(f"GPU of the {place}, timed {timed}: {name} after {took:.0f} ms")
        assert name == "AbortError" and took < 3 * SOON  # this GPU is a program: a product takes a fifth of a second
    assert found["value"] == pytest.approx(0.25)
    assert found["tensors"][0] == found["tensors"][1] and (found["kernels"] > 0) is timed

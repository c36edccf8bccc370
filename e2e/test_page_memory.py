"""The memory of a whole page: what it drops without releasing it, and limits that all sessions share."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from e2e.conftest import Tab

MIB = 1 << 20
STEP = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 2, p, 512] past, float[1, 2, s, 512] x) => (float[1, 2, t, 512] present, float[1, 2, s, t] y) {
  present = Concat <axis = 2> (past, x)
  turned = Transpose <perm = [0, 1, 3, 2]> (present)
  y = MatMul (x, turned)
}"""
TOOLS = """
  ort.env.wasm.proxy = true; // sessions stay in the worker
  const model = Uint8Array.from(atob(arg.model), (c) => c.charCodeAt(0));
  const open = (options) => ort.InferenceSession.create(model, options);
  const rows = (n, value = 1) => new ort.Tensor('float32', new Float32Array(1024 * n).fill(value), [1, 2, n, 512]);
  const settled = async (isDone) => {
    for (let n = 0; n < 200 && !isDone(await ort.stats()); n++) {
      gc();
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return ort.stats();
  };
"""
# Only in a tab of its own: these warnings do not reach Tab.warnings any more.
CATCH = "const warnings = []; console.warn = (text) => warnings.push(text);"


def run(page: Tab, script: str, **arg: object) -> Any:
    model = base64.b64encode(onnx.parser.parse_model(STEP).SerializeToString()).decode()
    return page.run(TOOLS + script, {"model": model, **arg})


DROP = """
  const options = { intraOpNumThreads: arg.threads };
  const use = async (session) => session.run({ past: rows(0), x: rows(16) });
  const first = await open(options);
  await use(first);
  await first.release();
  const before = await settled(({ threads }) => !threads);
  for (let k = 0; k < arg.count; k++) await use(await open(options));
  const after = await settled(({ sessions, threads }) => !sessions && !threads);
  const again = await use(await open(options));
  return { before, after, warnings, sum: again.y.data[0] };
"""


@pytest.mark.parametrize(("kind", "threads"), [("isolated", 2), ("plain", 1)])
def test_dropped_sessions_are_released(kind: str, threads: int, tab: Callable[..., Tab]) -> None:
    page = tab(kind)
    page.open("/esm.html")
    found = run(page, CATCH + DROP, threads=threads, count=30)
    before, after = found["before"], found["after"]
    assert after == before | {"droppedSessions": 30, "downloads": after["downloads"]}
    assert after["sessions"] == after["arenas"] == after["threads"] == after["teams"] == 0
    (warning,) = [text for text in found["warnings"] if "dropped" in text]
    assert "a session was dropped without release()" in warning and found["sum"] == 512


TURNS = """
  const events = [];
  const end = ort.on('memory', ({ memory, share, limit }) => events.push([memory, share, limit]));
  const sessions = await Promise.all([1, 2, 3].map(() => open()));
  const pasts = sessions.map(() => rows(0));
  const sizes = [];
  const step = async (k, n) => {
    const { present, y } = await sessions[k].run({ past: pasts[k], x: rows(512, k + 1) });
    pasts[k] = present;
    sizes.push((await ort.stats()).arenas);
    return y.data.at(-1) === 512 * (k + 1) ** 2 && y.dims[3] === 512 * (n + 1);
  };
  await step(0, 0);
  ort.env.memoryLimit = arg.limit;
  const right = [await step(1, 0), await step(2, 0)];
  for (let n = 1; n < 3; n++) for (const k of [0, 1, 2]) right.push(await step(k, n)); // one after the other
  right.push(...await Promise.all([0, 1, 2].map((k) => step(k, 3)))); // all at once
  const values = pasts.map(({ data, dims }, k) => dims[2] === 4 * 512 && data.every((value) => value === k + 1));
  const reports = await Promise.all(sessions.map((session) => session.memory()));
  const nodes = await Promise.all(sessions.map(async (session) => (await session.explain()).nodes.length));
  ort.env.memoryLimit = 4 * 2 ** 20;
  const told = await sessions[0].run({ past: rows(0), x: rows(2048) }).catch((error) => [error.type, error.message]);
  ort.env.memoryLimit = undefined;
  const { y } = await sessions[2].run({ past: rows(0), x: rows(2048) });
  end();
  await Promise.all(sessions.map((session) => session.release()));
  const [held, peaks] = ['arena', 'peak'].map((name) => reports.map((report) => report[name]));
  return { right, values, events, sizes, held, peaks, nodes, told, last: y.data[0] };
"""


def test_three_sessions_take_turns_where_two_fit(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    limit = 48 * MIB
    found = run(page, TURNS, limit=limit)
    assert found["right"] == [True] * 11 and found["values"] == [True] * 3
    assert max(found["sizes"]) <= limit
    assert 0 in found["held"] and found["peaks"][1] > 16 * MIB and found["nodes"] == [3] * 3  # reports outlast memory
    assert {(kind, share) for kind, share, size in found["events"] if size == limit} == {
        ("linear", 0.7),
        ("linear", 0.9),
    }
    kind, text = found["told"]
    assert kind == "OutOfMemory" and f"env.memoryLimit is {4 * MIB} (raise env.memoryLimit or release sessions)" in text
    assert found["last"] == 512  # without a limit


ON_GPU = """
  delete ort.env.wasm.proxy;
  const { device } = ort.env.webgpu;
  const options = { executionProviders: ['webgpu'], preferredOutputLocation: { present: 'gpu-buffer' } };
  const session = await open(options);
  const step = async (x) => (await session.run({ past: rows(0), x: rows(8, x) })).present;
  for (let k = 0; k < 20; k++) await step(0);
  const kept = await step(3);
  const { gpuBuffer } = await step(5); // the page may use the buffer without its tensor
  const dropped = await settled(({ tensors }) => tensors === 1);
  for (let k = 0; k < 4; k++) await step(0);
  const buffer = ort.Tensor.fromGpuBuffer(gpuBuffer, { dataType: 'float32', dims: [1, 2, 8, 512] });
  const read = async (past) => (await session.run({ past, x: rows(1) }, ['y'])).y.data[0];
  const fed = (await session.run({ past: await step(7), x: rows(1) }, ['y'])).y; // nothing else holds the tensor
  const values = [await read(kept), await read(buffer), fed.data[0]];
  kept.dispose();
  await session.release();
  await settled(({ tensors }) => !tensors);

  const events = [];
  ort.on('memory', ({ memory, share }) => events.push(`${memory} ${share}`));
  ort.env.gpuMemoryLimit = arg.limit;
  const sizes = [], right = [];
  const three = await Promise.all([1, 2, 3].map(() => open({ executionProviders: ['webgpu'] })));
  for (let n = 0; n < 2; n++) {
    for (const [k, one] of three.entries()) {
      const { y } = await one.run({ past: rows(2048, k), x: rows(1) });
      right.push(y.data[0] === 512 * k);
      sizes.push((await ort.stats()).gpu);
    }
  }
  return { dropped, values, warnings, events, sizes, right };
"""


def test_tensors_and_sessions_on_the_gpu(tab: Callable[..., Tab]) -> None:
    page = tab()
    page.open("/esm.html")
    limit = 40 * MIB
    found = run(page, CATCH + ON_GPU, limit=limit)
    dropped = found["dropped"]
    assert (dropped["tensors"], dropped["tensorBytes"], dropped["droppedTensors"]) == (1, 128 << 10, 21)
    assert found["values"] == [512.0 * n for n in (3, 5, 7)]
    (warning,) = found["warnings"]
    assert "a GPU tensor was dropped without dispose()" in warning
    assert found["right"] == [True] * 6 and max(found["sizes"]) <= limit and "gpu 0.7" in found["events"]


REFUSED = {
    "shared memory": "if (how.shared) throw new RangeError('refused')",
    "large maximum": "if (how.maximum > 128) throw new RangeError('refused')",
    "arrays": "",
}
REFUSE = """{
  const { Memory } = WebAssembly, Shared = globalThis.SharedArrayBuffer;
  WebAssembly.Memory = class extends Memory { constructor(how) { %s; super(how); } };
  WebAssembly.Memory.prototype.constructor = Memory;
  if (%s) globalThis.SharedArrayBuffer = class extends Shared { constructor() { throw new RangeError('refused'); } };
}
"""


@pytest.mark.parametrize("where", ["page", "page and workers"])
@pytest.mark.parametrize("what", REFUSED)
def test_a_browser_that_refuses_shared_memory(what: str, where: str, tab: Callable[..., Tab]) -> None:
    """Sessions run on fewer threads, or in less memory, in the worker and in the page."""
    page = tab()
    refuse = REFUSE % (REFUSED[what], "true" if what == "arrays" else "false")
    page.page.add_init_script(refuse)
    if where != "page":
        page.page.context.route("**/worker.mjs", lambda route: _prepend(route, refuse))
    page.open("/esm.html")
    found = run(
        page,
        """
        delete ort.env.wasm.proxy;
        const out = [];
        for (const options of [{ intraOpNumThreads: 2 }, { executionProviders: ['webgpu'] }]) {
          const session = await open(options);
          for (let n = 0; n < 70; n++) {
            const { y } = await session.run({ past: rows(0), x: rows(16) });
            if (n % 69 === 0) out.push(y.data[0]);
          }
          await session.release();
        }
        return out;
        """,
    )
    assert found == [512] * 4


def _prepend(route: Any, script: str) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, body=script + answer.text())


PREPARE = """
  const held = async () => (await ort.stats())[arg.memory];
  const session = await open({ executionProviders: arg.providers });
  const refused = await session.prepare({ dims: { p: 1 } }).catch((error) => [error.type, error.message]);
  await session.prepare({ dims: { p: 0, s: 64 } });
  await session.prepare({ dims: { p: 1023, s: 1 } });
  const before = await held();
  let last = await session.run({ past: rows(0), x: rows(64, 2) });
  for (let n = 0; n < 300; n++) last = await session.run({ past: last.present, x: rows(1, 2) });
  const { data, dims } = last.present;
  const right = data.every((value) => value === 2) && dims[2] === 364 && last.y.data.every((value) => value === 2048);
  const after = await held();
  await session.release();
  return { refused, right, before, after };
"""


@pytest.mark.parametrize(("memory", "providers"), [("arenas", ["wasm"]), ("gpu", ["webgpu"])])
def test_prepared_sessions_take_no_more_memory(memory: str, providers: list[str], page: Tab) -> None:
    found = run(page, PREPARE, memory=memory, providers=providers)
    assert found["refused"][0] == "InvalidInput" and 'axis 2 of input "x" has no size' in found["refused"][1]
    assert found["right"] and found["before"] >= found["after"] > MIB  # earlier tests dropped some

"""`session.metrics()` in a page agrees with what a driver counted, by the table of kit/run_counts.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from e2e.conftest import Tab
from e2e.test_webgpu_faults import KEEP_DEVICES, worker
from kit.run_counts import TABLE

OPEN = """
  globalThis.heard = [];
  globalThis.end = ort.on('session', (event) => heard.push(event));
  globalThis.session = await ort.InferenceSession.create('/models/affine.onnx', {
    executionProviders: [arg], extra: { session: { disable_program_cache: '1' } } });
"""
TAKE = """
  const [kind, rows = 1] = arg.split(' ');
  const signal = kind === 'stop' ? AbortSignal.abort() : undefined;
  const x = new ort.Tensor('float32', new Float32Array(4 * rows), kind === 'refuse' ? [4 * rows] : [Number(rows), 4]);
  if (kind === 'release') await session.release();
  else await session.run({ x }, { signal }).catch(() => {});
"""
REPORT = """
  end();
  const found = [await session.metrics(), heard, session.id, session.state];
  await session.release(); // else its end, when garbage is collected, is an event that a later row hears
  return found;
"""


def test_metrics_agree_with_the_driver(tab: Callable[..., Tab]) -> None:
    made = tab()
    page = made.open("/esm.html")
    made.run("ort.env.wasm.proxy = true; await ort.boot()")  # in the worker, where plans are made once
    worker(page).evaluate(KEEP_DEVICES)
    for row in TABLE:
        made.run(OPEN, "webgpu" if row.on_gpu else "wasm")
        for step in row.steps:
            if step == "lose":
                worker(page).evaluate("devices.at(-1).destroy()")
            else:
                made.run(TAKE, step)
        found: Any = made.run(REPORT)
        row.check(*found)


def test_metrics_count_runs_in_the_page_and_runs_that_wait(tab: Callable[..., Tab]) -> None:
    made = tab()
    made.open("/esm.html")
    found: Any = made.run(
        OPEN
        + """
        const x = new ort.Tensor('float32', new Float32Array(4), [1, 4]);
        const waits = Array.from({ length: 300 }, () => session.run({ x }));
        const busy = [session.state, session.handler.watch.busy];
        const { waiting, runs } = await session.metrics();
        await Promise.all(waits);
        for (let n = 0; n < 100; n++) {
          if (n % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 30)); // to fetch the executor
          await session.run({ x });
        }
        ort.shutdown();
        const places = heard.filter(({ type }) => type === 'run').map(({ place }) => place);
        return [...busy, waiting + runs, [...new Set(places)], session.state,
          (await session.metrics()).runs];
        """,
        "wasm",
    )
    state, busy, known, places, end, runs = found
    assert (state, busy) == ("running", 300) and 299 <= known <= 300 and set(places) == {"worker", "page"}
    assert end == "failed" and runs == 400

"""`session.metrics()` in a page agrees with what a driver counted, by the table of tests/test_metrics.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from e2e.conftest import Tab
from e2e.test_webgpu_faults import KEEP_DEVICES, worker
from kit.chromium import ROOT

TABLE = json.loads((ROOT / "tests" / "vectors" / "metrics.json").read_text())
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
  const metrics = await session.metrics();
  return { ...metrics, session: session.id, heard, state: session.state };
"""


def test_metrics_agree_with_the_driver(tab: Callable[..., Tab]) -> None:
    made = tab()
    page = made.open("/esm.html")
    made.run("ort.env.wasm.proxy = true; await ort.boot()")  # in the worker, where plans are made once
    worker(page).evaluate(KEEP_DEVICES)
    for row in TABLE:
        made.run(OPEN, "webgpu" if row.get("gpu") else "wasm")
        for step in row["steps"]:
            if step == "lose":
                worker(page).evaluate("devices.at(-1).destroy()")
            else:
                made.run(TAKE, step)
        check(made.run(REPORT), row)


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
        for (let n = 0; n < 100; n++) await session.run({ x });
        ort.shutdown();
        return [...busy, waiting + runs, [...new Set(heard.filter(({ type }) => type === 'run').map(({ place }) => place))], session.state,
          (await session.metrics()).runs];
        """,
        "wasm",
    )
    state, busy, known, places, end, runs = found
    assert (state, busy) == ("running", 300) and 299 <= known <= 300 and set(places) == {"worker", "page"}
    assert end == "failed" and runs == 400


def check(found: Any, row: dict[str, Any]) -> None:
    for name in ("runs", "failed", "stopped", "recovered"):
        assert found[name] == row[name], name
    assert found["plans"]["made"] == row.get("planned", found["plans"]["made"])
    heard = found["heard"]
    runs = [event for event in heard if event["type"] == "run"]
    assert [event["outcome"] for event in runs] == row["outcomes"]
    assert [e["state"] for e in heard if e["type"] == "state"] + [found["state"]] == row["states"]
    assert heard[0]["type"] == "created" and {e["session"] for e in heard} == {found["session"]}
    took = sorted(e["milliseconds"] for e in runs if e["outcome"] == "succeeded")
    assert abs(found["milliseconds"]["max"] - took[-1]) < 0.01
    assert found["waiting"] == 0 and found["compiled"] >= 1
    assert (found["bytes"] > 0) == (found["state"] != "released")

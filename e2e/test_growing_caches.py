"""Outputs that are fed back: the page sends their names alone while nobody has looked at their data."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from e2e.conftest import Tab
from kit.chromium import Engine
from kit.decoders import TINY, Decoder, feeds
from kit.static_caches import FLOAT, HEADS, Write, by_mask, by_rows, by_transposes, decoder, steps

STEP = """g (float[1, 2, p, 4] past, float[1, 2, s, 4] x) => (float[1, 2, t, 4] present, float[1, 2, s, t] y) {
  present = Concat <axis = 2> (past, x)
  turned = Transpose <perm = [0, 1, 3, 2]> (present)
  y = MatMul (x, turned)
}"""
TOOLS = """
  ort.env.wasm.proxy = true; // a run in the page sends nothing
  const { Tensor, InferenceSession } = ort;
  const open = () => InferenceSession.create(Uint8Array.from(atob(arg), (c) => c.charCodeAt(0)));
  const values = (n, length) => Float32Array.from({ length }, (_, i) => n + i / 16);
  const row = (n, rows = 1) => new Tensor('float32', values(n, 8 * rows), [1, 2, rows, 4]);
  const none = () => new Tensor('float32', new Float32Array(0), [1, 2, 0, 4]);
  const fresh = ({ type, data, dims }) => new Tensor(type, data.slice(), [...dims]);
  const told = ({ data, dims }) => [...dims, ...data].join();
  const both = (outputs) => [told(outputs.present), told(outputs.y)];
  const post = Worker.prototype.postMessage;
  const posted = [];
  Worker.prototype.postMessage = function (message, ...rest) {
    if (message.call === 'run') posted.push(message.params.feeds.past.held ?? 0);
    return post.call(this, message, ...rest);
  };
  const sent = () => posted.splice(0).map(Boolean);
  const other = await open(); // which gets data alone
  const session = await open();
  const wanted = async (past, x) => both(await other.run({ past: fresh(past), x }));
  const done = (result) => (Worker.prototype.postMessage = post, result);
  let last = await session.run({ past: none(), x: row(0) });
  sent();
"""
CASES = {
    "many tokens": """
      let kept = last.present;
      for (let n = 1; n < 40; n++) {
        last = await session.run({ past: last.present, x: row(n) });
      }
      const all = sent();
      let slow = await other.run({ past: none(), x: row(0) });
      for (let n = 1; n < 40; n++) slow = await other.run({ past: fresh(slow.present), x: row(n) });
      const first = row(0);
      return done([all.every(Boolean) && all.length === 39, both(last), both(slow), told(kept), told(first)]);
    """,
    "data that were changed": """
      last.present.data[3] = 99;
      const past = fresh(last.present);
      const found = both(await session.run({ past: last.present, x: row(1) }));
      const names = sent();
      return done([names, found, await wanted(past, row(1))]);
    """,
    "data that were read": """
      const past = fresh(last.present);
      const found = both(await session.run({ past: last.present, x: row(1) }));
      const names = sent();
      return done([names, found, await wanted(past, row(1))]);
    """,
    "one past twice": """
      const first = both(await session.run({ past: last.present, x: row(1) }));
      const second = both(await session.run({ past: last.present, x: row(2) }));
      const names = sent();
      return done([names, first, await wanted(last.present, row(1)), second, await wanted(last.present, row(2))]);
    """,
    "runs that are not waited for": """
      const runs = [1, 2, 3].map((n) => session.run({ past: last.present, x: row(n) }));
      const found = (await Promise.all(runs)).map(both);
      const names = sent();
      const right = [];
      for (const n of [1, 2, 3]) right.push(await wanted(last.present, row(n)));
      return done([names, found, right]);
    """,
    "changed while a run is under way": """
      const runs = [1, 2].map((n) => session.run({ past: last.present, x: row(n) }));
      last.present.data.fill(7);
      const found = (await Promise.all(runs)).map(both);
      const changed = both(await session.run({ past: last.present, x: row(3) }));
      const names = sent();
      const was = (await other.run({ past: none(), x: row(0) })).present;
      const sevens = new Tensor('float32', new Float32Array(8).fill(7), [1, 2, 1, 4]);
      const right = [await wanted(was, row(1)), await wanted(was, row(2)), await wanted(sevens, row(3))];
      return done([names, [...found, changed], right]);
    """,
    "after trim": """
      last = await session.run({ past: last.present, x: row(1, 4000) }); // grows the memory
      sent();
      await session.trim();
      const found = both(await session.run({ past: last.present, x: row(1) }));
      const names = sent();
      return done([names, found, await wanted(last.present, row(1))]);
    """,
    "after another run": """
      await session.run({ past: none(), x: row(5, 3) });
      sent();
      const found = both(await session.run({ past: last.present, x: row(1) }));
      const names = sent();
      return done([names, found, await wanted(last.present, row(1))]);
    """,
    "after a run that failed": """
      const wrong = new Tensor('float32', new Float32Array(6), [1, 1, 1, 6]);
      const refused = await session.run({ past: last.present, x: wrong }).catch((error) => error.name);
      sent();
      const found = both(await session.run({ past: last.present, x: row(1) }));
      return done([refused === 'InvalidInput', found, await wanted(last.present, row(1))]);
    """,
    "another session's": """
      const found = both(await other.run({ past: last.present, x: row(1) }));
      const names = sent();
      return done([names, found, await wanted(last.present, row(1))]);
    """,
    "many rows at once": """
      last = await session.run({ past: last.present, x: row(1, 50) });
      last = await session.run({ past: last.present, x: row(2, 3) });
      last = await session.run({ past: last.present, x: row(2, 0) });
      const all = sent();
      let slow = await other.run({ past: none(), x: row(0) });
      for (const [n, rows] of [[1, 50], [2, 3], [2, 0]]) {
        slow = await other.run({ past: fresh(slow.present), x: row(n, rows) });
      }
      return done([all, both(last), both(slow)]);
    """,
    "another feed is changed behind the run": """
      await session.run({ past: none(), x: row(5, 3) });
      sent();
      const x = row(1);
      const run = session.run({ past: last.present, x });
      x.data.fill(9);
      const found = both(await run);
      const names = sent();
      return done([names, found, await wanted(last.present, row(1))]);
    """,
    "of a worker that is gone": """
      const made = [];
      for (const n of [1, 2]) { // the same numbers, for sessions and for what they leave
        ort.shutdown();
        const next = await open();
        made.push({ next, past: (await next.run({ past: none(), x: row(n) })).present });
      }
      sent();
      const found = both(await made[1].next.run({ past: made[0].past, x: row(3) }));
      const names = sent();
      return done([names, found, both(await made[1].next.run({ past: fresh(made[0].past), x: row(3) }))]);
    """,
    "all of a history, after it": """
      const all = [last.present];
      for (let n = 1; n < 6; n++) all.push((last = await session.run({ past: last.present, x: row(n, n) })).present);
      const names = sent();
      let slow = await other.run({ past: none(), x: row(0) });
      const right = [slow.present];
      for (let n = 1; n < 6; n++) {
        slow = await other.run({ past: fresh(slow.present), x: row(n, n) });
        right.push(slow.present);
      }
      all[0].data.fill(9); // no other has these
      all[3].data.fill(8);
      const filled = (n, value) => new Tensor('float32', new Float32Array(right[n].size).fill(value), right[n].dims);
      right[0] = filled(0, 9);
      right[3] = filled(3, 8);
      const order = [4, 1, 5, 2, 0, 3];
      const got = order.map((n) => told(all[n])), want = order.map((n) => told(right[n]));
      const changed = both(await session.run({ past: all[3], x: row(7) }));
      return done([names, got, want, changed, await wanted(right[3], row(7))]);
    """,
    "a run that needs all of a history": """
      for (let n = 1; n < 4; n++) last = await session.run({ past: last.present, x: row(n) });
      await session.run({ past: none(), x: row(5, 3) });
      sent();
      const size = last.present.size === 32 && last.present.dims.join() === '1,2,4,4';
      const next = await session.run({ past: last.present, x: row(4) });
      const names = sent();
      const found = both(await session.run({ past: next.present, x: row(5) }));
      const past = fresh(next.present);
      return done([[size, ...names], found, await wanted(past, row(5))]);
    """,
    "filled by the caller": """
      const present = new Tensor('float32', new Float32Array(16), [1, 2, 2, 4]);
      const found = await session.run({ past: last.present, x: row(1) }, { present, y: null });
      const next = both(await session.run({ past: present, x: row(2) }));
      return done([found.present === present, next, await wanted(present, row(2))]);
    """,
}
SENT = {  # whether runs were sent names; a name that is not known any more is asked about once
    "data that were changed": [False], "data that were read": [False], "one past twice": [True, True, False],
    "runs that are not waited for": [True, True, True, False, False],
    "changed while a run is under way": [True, True, False, False], "after trim": [True, False],
    "after another run": [True, False], "another session's": [False],
    "another feed is changed behind the run": [True, False], "of a worker that is gone": [False],
    "many rows at once": [True, True, True], "all of a history, after it": [True] * 5,
    "a run that needs all of a history": [True, True, False],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_past_that_is_fed_back(case: str, page: Tab) -> None:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {STEP}')
    told, *values = page.run(TOOLS + CASES[case], base64.b64encode(made.SerializeToString()).decode())
    assert told == SENT.get(case, True)
    for got, want in zip(values[::2], values[1::2], strict=True):
        assert got == want


def test_a_decoder(engine: Engine) -> None:
    """Token after token in the page, as onnxruntime makes them."""
    made = Decoder(TINY, "int4", empty=False).model().SerializeToString()
    session, peer = engine.open(made), onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    names = [o.name for o in peer.get_outputs()]
    given: dict[str, Any] = feeds(TINY, "int4", 5, 0)
    for length in range(5, 25):
        want = dict(zip(names, peer.run(None, given), strict=True))
        for got, name in zip(session.run(names, given), names, strict=True):
            np.testing.assert_allclose(got, want[name], rtol=1e-3, atol=1e-4)
        caches = {name.replace("present", "past"): x for name, x in want.items() if name != "logits"}
        given = feeds(TINY, "int4", 1, length) | caches
    session.release()


STEPS = """
  ort.env.wasm.proxy = true;
  const { Tensor, InferenceSession } = ort;
  const { model, steps } = JSON.parse(arg);
  const bytes = Uint8Array.from(atob(model), (c) => c.charCodeAt(0));
  const property = Object.getOwnPropertyDescriptor(MessageEvent.prototype, 'data');
  const rows = []; // of a cache that came from the worker
  const seen = new WeakSet();
  Object.defineProperty(MessageEvent.prototype, 'data', { ...property, get() {
    const data = property.get.call(this);
    const cache = data?.result?.outputs?.['present.0.key'];
    if (cache && !seen.has(this)) rows.push(cache.data.length / 16 / cache.dims[0]);
    seen.add(this);
    return data;
  } });
  const [session, other] = [await InferenceSession.create(bytes), await InferenceSession.create(bytes.slice())];
  const given = (step) => Object.fromEntries(Object.entries(step).map(([name, [type, data, dims]]) => (
    [name, new Tensor(type, type === 'int64' ? BigInt64Array.from(data, BigInt) : data, dims)])));
  const copy = ({ type, data, dims }) => new Tensor(type, data.slice(), [...dims]);
  const caches = (outputs) => Object.entries(outputs ?? {}).filter(([name]) => name !== 'logits');
  const pasts = (outputs, copied) => Object.fromEntries(caches(outputs).map(([name, x]) => (
    [name.replace('present', 'past'), copied ? copy(x) : x])));
  const histories = [[], []];
  for (const [n, one] of [session, other].entries()) {
    for (const step of steps) histories[n].push(await one.run({ ...given(step), ...pasts(histories[n].at(-1), n) }));
  }
  Object.defineProperty(MessageEvent.prototype, 'data', property);
  const values = ([name, { dims, data }]) => [name, ...dims, ...data].join();
  const told = (outputs) => Object.entries(outputs).sort().map(values).join();
  const result = [rows.slice(0, steps.length), ...histories.map((history) => history.map(told))];
  for (const one of [session, other]) await one.release();
  return result;
"""


def token(*lasts: int, tokens: int = 1, total: int | None = None) -> dict[str, Any]:
    """What a run of TINY is fed besides caches, as type, data and dims. lasts: the place of each item's last token."""
    total = max(lasts) + 1 if total is None else total
    ids = [(7 * total + i) % 50 for i in range(len(lasts) * tokens)]
    items = len(lasts)
    return {"ids": ["int64", ids, [items, tokens]], "last": ["int32", lasts, [items]], "total": ["int32", [total], []]}


def begin(items: int, tokens: int) -> dict[str, Any]:
    caches = {name: ["float32", [], [items, 2, 0, 8]] for name in feeds(TINY, "fp32", 1, 0) if name.startswith("past")}
    return {**token(*[tokens - 1] * items, tokens=tokens), **caches}


ROWS = {  # steps, and the rows of a cache that they send the page
    "token after token": ([begin(1, 4), token(4), token(5), token(6)], [4, 1, 1, 1]),
    "several tokens": ([begin(1, 4), token(6, tokens=3), token(7)], [4, 3, 1]),
    "items of different lengths": ([begin(2, 4), token(4, 4), token(5, 3), token(6, 4)], [4, 5, 6, 7]),
    "a place that is not the last": ([begin(1, 4), token(4), token(2, total=6), token(6)], [4, 1, 6, 1]),
    "a cache that has room": ([begin(1, 6), token(3, total=4), token(4, total=5)], [6, 6, 6]),
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_that_are_sent(case: str, page: Tab) -> None:
    """All steps' caches are read at the end; in the other session each is, before the next step."""
    steps, sent = ROWS[case]
    data = base64.b64encode(Decoder(TINY, "fp32", empty=False).model().SerializeToString()).decode()
    rows, kept, read = page.run(STEPS, json.dumps({"model": data, "steps": steps}))
    assert kept == read
    assert rows == sent


@pytest.mark.parametrize("write", [by_rows, by_transposes, by_mask])
def test_caches_of_a_fixed_size(write: Write, page: Tab) -> None:
    """Written in place in one session; in the other each past is sent."""
    given = [{n: [str(x.dtype), x.ravel().tolist(), x.shape] for n, x in feeds.items()} for feeds in steps(FLOAT)]
    given[0] |= {f"past_{part}": ["float32", [0] * math.prod(HEADS), HEADS] for part in "kv"}
    data = base64.b64encode(decoder(write).SerializeToString()).decode()
    _, kept, read = page.run(STEPS, json.dumps({"model": data, "steps": given}))
    assert len(kept) == len(given) and kept == read

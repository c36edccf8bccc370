// tests/vectors in JavaScript; tests/test_vectors.py is the same in Python.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { unpackBits } from '../../web/common/elements.js';
import { fromGpuStorage, toGpuStorage } from '../../web/gpu/storage.js';
import { Arena } from '../../web/runtime/arena.js';
import { compileDims, evaluate, symbols } from '../../web/common/dims.js';
import { layOut, LiveRange } from '../../web/runtime/step_layout.js';
import { explain } from '../../web/runtime/explain.js';
import { byteRanges, nextCapacity } from '../../web/runtime/growth.js';
import { Guards } from '../../web/runtime/guards.js';
import { OrderTrial } from '../../web/runtime/order_trial.js';
import { stackedDims } from '../../web/runtime/stacking.js';
import { fastest, Trial } from '../../web/runtime/trial.js';
import { sentence } from './sentences.mjs';

const env = (values) => new Map(Object.entries(values));

function refusal(type, work) {
  try {
    work();
  } catch (error) {
    assert.equal(error.type, type, error.stack);
    return sentence(error);
  }
  return null;
}

/** The digits of a text; "1*9" stands for nine of them. */
const numbers = (text) => text.split(' ').flatMap((word) => {
  const [digits, count = 1] = word.split('*');
  return [...digits.repeat(count)].map(Number);
});

const CHECKS = {
  dims({ dim, symbols: values, value }) {
    assert.equal(evaluate(dim, env(values)) + 0, value); // + 0: -0 is 0
    assert.deepEqual(compileDims([dim, 1, dim])(env(values)).map((n) => n + 0), [value, 1, value]);
    assert.deepEqual([...symbols(dim)].sort(), Object.keys(values).sort());
  },
  guards({ guards, symbols, shown = {}, dims = [], fresh, unsupported, refused }) {
    const found = new Guards({ guards, dims, symbols: shown });
    assert.equal(refusal(unsupported ? 'UnsupportedOp' : 'ShapeError', () => found.bound(env(symbols), new Set(fresh))), refused);
  },
  unpack({ bits, signed, packed, elements }) {
    const into = new Uint8Array(elements.length);
    unpackBits(Uint8Array.from(packed), bits, signed, into);
    assert.deepEqual([...into], elements);
  },
  int64({ dtype, elements, stored, refused }) {
    const values = (dtype === 'int64' ? BigInt64Array : BigUint64Array).from(elements, BigInt);
    const bytes = new Uint8Array(values.buffer);
    if (refused) {
      assert.equal(refusal('ExecutionError', () => toGpuStorage(bytes, dtype)), refused);
      return;
    }
    const narrow = toGpuStorage(bytes, dtype);
    assert.deepEqual([...new Uint32Array(narrow.buffer, narrow.byteOffset, narrow.length / 4)], stored);
    const wide = new Uint8Array(bytes.length);
    fromGpuStorage(narrow, dtype, wide);
    assert.deepEqual(wide, bytes);
  },
  layout({ calls, free, end, ranges, addresses, reach }) {
    const arena = Object.assign(new Arena(0), { free, end, top: end });
    const found = ranges.map((range) => new LiveRange(...range));
    layOut(arena, found, calls);
    assert.deepEqual(found.map(({ address }) => address), addresses);
    assert.equal(arena.top, reach);
  },
  sizes({ size, rounded }) {
    assert.equal(new Arena(0).round(size), rounded);
  },
  explain({ table, symbols, moved, told }) {
    assert.deepEqual(explain({ explain: table }, env(symbols), moved), told);
  },
  growth({ shape, axis, capacity, item, ranges, least, next, refused = null }) {
    let found;
    assert.equal(refusal('ShapeError', () => (found = byteRanges(shape, axis, capacity, item))), refused);
    if (refused) return;
    assert.deepEqual([found.count, found.length, found.stride, found.row], ranges);
    assert.equal(nextCapacity(least, found), next);
  },
  fastest({ costs, gain, winner }) {
    assert.equal(fastest(costs, gain), winner);
  },
  trial({ candidates, rounds, gain, retry_after: retryAfter, phases }) {
    const trial = new Trial(candidates, rounds, gain, retryAfter);
    for (const { times, runs, best } of phases) {
      for (const expected of numbers(runs)) {
        assert.equal(trial.current, expected);
        trial.took(times[trial.current]);
      }
      assert.equal(trial.best, best);
    }
  },
  order_trial({ phases }) {
    const trial = new OrderTrial();
    for (const { times, reads, orders, best, shared = false } of phases) {
      for (const [n, expected] of numbers(orders).entries()) {
        assert.equal(trial.order, expected);
        trial.took(reads[n % reads.length], times[trial.order], shared);
      }
      assert.equal(trial.best, best);
    }
  },
  stack({ rank, shapes, stacked, refused = null }) {
    let found;
    assert.equal(refusal('ExecutionError', () => (found = stackedDims(shapes, rank, 'Loop "l" (opset 20)'))), refused);
    assert.deepEqual(found, stacked);
  },
};

for (const [name, check] of Object.entries(CHECKS)) {
  test(name, () => {
    const { cases } = JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), 'utf8'));
    for (const given of cases) {
      try {
        check(given);
      } catch (cause) {
        throw new Error(`${JSON.stringify(given)}: ${cause.message}`, { cause });
      }
    }
  });
}

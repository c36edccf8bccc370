// tests/vectors in JavaScript; tests/test_vectors.py is the same in Python.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { unpackBits } from '../../web/common/elements.js';
import { fromGpuStorage, toGpuStorage } from '../../web/gpu/storage.js';
import { Arena } from '../../web/run/arena.js';
import { evaluate, symbols } from '../../web/common/dims.js';
import { layOut, LiveRange } from '../../web/run/step_layout.js';
import { explain } from '../../web/runtime/explain.js';
import { Guards } from '../../web/runtime/guards.js';
import { stackedDims } from '../../web/runtime/stacking.js';

const env = (values) => new Map(Object.entries(values));

function refusal(type, work) {
  try {
    work();
  } catch (error) {
    assert.equal(error.type, type, error.stack);
    return error.message;
  }
  return null;
}

const CHECKS = {
  dims({ dim, symbols: values, value }) {
    assert.equal(evaluate(dim, env(values)) + 0, value); // + 0: -0 is 0
    assert.deepEqual([...symbols(dim)].sort(), Object.keys(values).sort());
  },
  guards({ guards, symbols, shown = {}, fresh, refused }) {
    const found = new Guards({ guards, symbols: shown });
    assert.equal(refusal('ShapeError', () => found.check(env(symbols), new Set(fresh))), refused);
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
    const { base } = new Arena();
    const arena = new Arena(free.map(([address, size]) => ({ address: address + base, size })), end + base);
    const found = ranges.map(([size, born, dies, address]) => new LiveRange(size, born, dies, address < 0 ? -1 : address + base));
    layOut(arena, found, calls);
    assert.deepEqual(found.map(({ address }) => address - base), addresses);
    assert.equal(arena.end - base, reach);
  },
  sizes({ size, rounded }) {
    assert.equal(new Arena().round(size), rounded);
  },
  explain({ table, symbols, told }) {
    assert.deepEqual(explain({ explain: table }, env(symbols)), told);
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

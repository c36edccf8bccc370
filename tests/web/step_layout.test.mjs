// Where the tensors of one step lie: small cases by hand, and many at random that must not overlap. (The same as in Python:
// tests/test_memory.py.)

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Arena, GPU } from '../../web/runtime/arena.js';
import { layOut, LiveRange } from '../../web/runtime/step_layout.js';
import { dice } from './dice.mjs';

/** Addresses of ranges [size, born, dies, address], and the free list, in units of 64 bytes. */
function laid(arena, ranges, calls) {
  const made = ranges.map(([size, born, dies, address]) => new LiveRange(64 * size, born, dies, address === undefined ? -1 : arena.base + 64 * address));
  layOut(arena, made, calls);
  const unit = (address) => (address - arena.base) / 64;
  return { at: made.map(({ address }) => unit(address)), free: arena.free.map(([address, size]) => [unit(address), size / 64]), top: unit(arena.top) };
}

for (const [told, ranges, calls, wanted] of [
  ['none', [], 3, { at: [], free: [], top: 0 }],
  ['one that outlives the step', [[2, 0, 1]], 1, { at: [0], free: [], top: 2 }],
  ['one that does not', [[2, 0, 0]], 1, { at: [0], free: [], top: 2 }],
  ['two at once', [[1, 0, 1], [3, 0, 1]], 2, { at: [3, 0], free: [], top: 4 }],
  ['two after each other', [[3, 0, 0], [2, 1, 1]], 2, { at: [0, 0], free: [], top: 3 }],
  ['a result beside its operand', [[2, 0, 1], [2, 1, 2]], 2, { at: [0, 2], free: [[0, 2]], top: 4 }],
  ['around what has its place', [[1, 0, 2, 1], [1, 0, 1], [2, 0, 1]], 2, { at: [1, 0, 2], free: [[0, 1]], top: 4 }],
]) {
  test(told, () => {
    const arena = new Arena(1024);
    const before = ranges.filter(([,,, address]) => address !== undefined);
    arena.rebuild(before.map(([size,,, address]) => [arena.base + 64 * address, arena.base + 64 * (address + size)]));
    assert.deepEqual(laid(arena, ranges, calls), wanted);
  });
}

for (const chunk of [0, 4096]) {
  test(`200 steps ${chunk ? "in the GPU's buffers" : 'in linear memory'}: what lives at once lies apart`, () => {
    for (let seed = 0; seed < 200; seed++) {
      const roll = dice(seed);
      const calls = 1 + roll(6);
      const arena = chunk ? new Arena(GPU, chunk) : new Arena(1024);
      const ranges = Array.from({ length: 1 + roll(12) }, () => {
        const born = roll(calls);
        return new LiveRange(256 * (1 + roll(8)), born, born + roll(calls - born + 1), -1, chunk > 0);
      });
      layOut(arena, ranges, calls);
      const apart = (a, b) => a.address + a.size <= b.address || b.address + b.size <= a.address;
      for (const [i, a] of ranges.entries()) {
        assert.ok(a.address >= arena.base && a.address + a.size <= arena.top, `seed ${seed}: within the arena`);
        if (chunk) assert.equal(Math.floor((a.address - GPU) / chunk), Math.floor((a.address + a.size - 1 - GPU) / chunk), `seed ${seed}: in one buffer`);
        for (const b of ranges.slice(i + 1)) if (a.born <= b.dies && b.born <= a.dies) assert.ok(apart(a, b), `seed ${seed}: ${JSON.stringify([a, b])}`);
        for (const [address, size] of arena.free) if (a.dies >= calls) assert.ok(apart(a, { address, size }), `seed ${seed}: not free`);
      }
    }
  });
}

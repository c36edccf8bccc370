// Layouts that several shapes share: tensors alive at once never overlap, and few layouts are made as shapes grow.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OutOfMemory, ShapeError } from '../../web/common/errors.js';
import { evaluate } from '../../web/common/dims.js';
import { ArgumentBlocks } from '../../web/run/argument_blocks.js';
import { Planner } from '../../web/runtime/planner.js';
import { State } from '../../web/runtime/states.js';
import { Model } from '../../web/session/model.js';
import { ProgramTable } from '../../web/session/program_table.js';
import { dice } from './dice.mjs';

const [X, Y, A, B, C, D] = [0, 1, 2, 3, 4, 5];
const SIZES = [['*', 4, 'n'], ['*', 4, 'm'], ['*', 4, 'n'], ['*', 4, ['max', 'n', 'm']], ['+', ['*', 2, 'm'], 2], ['+', ['*', 4, 'n'], -20]];
const call = (buffers, alloc, free, inplace = []) => ({ node: 'k', kernel: 'k', buffers, params: ['n', ['+', 'n', 'm'], 7], work: 'm', alloc, free, inplace });
/** b may take over the memory of a if n is at least m, and that of y if m is at least n: then they have the size of b. */
const CALLS = [
  call([X, A], [A], [X], [[A, X]]), call([A, Y, B], [B], [A, Y], [[B, A], [B, Y]]), call([B, C], [C], []), call([B, C, D], [D], [B]),
];

function planner(buffers = [], sizes = SIZES) {
  const memory = { ensure() {}, blocks: (calls) => new ArgumentBlocks(calls), writeWords() {} };
  const gpu = buffers.length ? { memory: { chunk: 2 ** 24, ensure() {} }, parameterBytes: 0, prepare: (calls, sizes, words) => ({ sizes, words }), forget() {} } : null;
  const header = { buffers: sizes.map((size, n) => ({ size, ...(buffers.includes(n) && { memory: 'webgpu' }) })), blocks: [], guards: [], symbols: {} };
  return new Planner(header, memory, gpu, 8);
}

/** The layout of calls, and the words of their argument blocks. */
function laidOut(plan, calls, state) {
  const words = [];
  const prepared = plan.gpu ? plan.planDispatches({ calls }, state, '1.0') : null;
  const note = (_, found) => words.push(...found);
  const { layout } = prepared ?? Object.assign(plan, { memory: { ...plan.memory, writeWords: note } }).planCalls({ calls }, state, '1.0');
  return { words: prepared ? [...prepared.prepared.words] : words, layout };
}

/** One run: the words of its calls, as an executor finds them, and the state behind it. */
function run(plan, n, m) {
  plan.limit();
  const state = plan.advance(plan.root, `${n},${m}`, (next) => {
    next.env.set('n', n).set('m', m);
    plan.take(next, [X, Y]);
  });
  const { words, layout } = laidOut(plan, CALLS, state);
  const after = new State(layout.after, state.env);
  return { words, after, end: plan.advance(after, 'end', (next) => next.drop([C, D])), env: state.env };
}

/** By the definition: at each call, what was made and is not freed yet. */
function check({ words, env }) {
  const size = (buffer) => evaluate(SIZES[buffer], env);
  const address = new Map();
  const alive = new Set([X, Y]);
  let at = 0;
  for (const { buffers, params, work, alloc, free, inplace } of CALLS) {
    for (const buffer of buffers) {
      assert.equal(address.get(buffer) ?? words[at], words[at], 'a buffer does not move');
      address.set(buffer, words[at++]);
    }
    assert.deepEqual(words.slice(at, (at += params.length + 1)), [...params, work].map((dim) => evaluate(dim, env)));
    for (const buffer of alloc) alive.add(buffer);
    const known = [...alive].filter((buffer) => address.has(buffer));
    for (const a of known) {
      for (const b of known.filter((each) => each < a)) {
        const heir = inplace.some(([output, input]) => output === a && input === b) && free.includes(b) && size(a) === size(b);
        const apart = address.get(a) + size(a) <= address.get(b) || address.get(b) + size(b) <= address.get(a);
        assert.ok(apart || heir, `${a} over ${b} at ${[...env]}`);
      }
    }
    for (const buffer of free) alive.delete(buffer);
  }
}

for (const [where, buffers] of [['linear memory', []], ["the GPU's", [X, Y, A, B, C, D]], ['both', [A, B]]]) {
  test(`sizes that grow, shrink, and are equal in one run and not in the next, in ${where}`, () => {
    const plan = planner(buffers);
    const roll = dice(buffers.length);
    for (let round = 0; round < 2000; round++) {
      const [scale, other] = [10 ** (1 + roll(5)), 10 ** (1 + roll(5))];
      const n = 5 + roll(scale);
      check(run(plan, n, [n, n + 1, 0, roll(other)][roll(4)]));
    }
  });
}

test('as one size grows few layouts are made, and nothing is left behind', () => {
  const plan = planner();
  for (let n = 100; n < 2000; n++) {
    const found = run(plan, n, 64);
    check(found);
    assert.equal(found.end.place.spans.size, 0);
    assert.equal(found.end.place.arena.used, 0);
  }
  assert.ok(plan.layouts < 150, `${plan.layouts} layouts`); // three a run were each planned, 5700
});

test('many small sizes that grow make few, too: more room for each is not too much for all', () => {
  const plan = planner([], Array.from({ length: 60 }, () => ['*', 16, 'n']));
  const calls = Array.from({ length: 59 }, (_, n) => call([n, n + 1], [n + 1], [n]));
  for (let n = 10; n < 400; n++) {
    const state = plan.advance(plan.root, `${n}`, (next) => {
      next.env.set('n', n).set('m', 1);
      plan.take(next, [0]);
    });
    laidOut(plan, calls, state);
  }
  assert.ok(plan.layouts < 20, `${plan.layouts} layouts`);
});

test('the first of each, and those after `tighten`, have no room to spare', () => {
  const plan = planner();
  for (const n of [500, 510, 530]) run(plan, n, 9);
  assert.ok(run(plan, 531, 9).after.place.arena.peak > run(planner(), 531, 9).after.place.arena.peak);
  assert.equal(plan.tighten(), true);
  assert.deepEqual(run(plan, 531, 9).words, run(planner(), 531, 9).words);
  assert.deepEqual(run(plan, 531, 9).words, run(planner(), 531, 9).words);
  assert.equal(plan.tighten(), false);
});

test('a small run does not lie as far apart as a large one', () => {
  const plan = planner();
  for (const n of [1e6, 10, 1.01e6, 11]) {
    const { arena } = run(plan, n, 10).after.place;
    const needed = run(planner(), n, 10).after.place.arena;
    assert.ok(arena.peak <= 2 * needed.peak + 2 ** 16);
    assert.ok(arena.top <= 2 * needed.top + 2 ** 17);
  }
});

test('a size that cannot be is refused, however much room there is', () => {
  const plan = planner();
  for (const n of [8, 9, 10, 9]) run(plan, n, 4);
  assert.throws(() => run(plan, 4, 4), ShapeError);
  check(run(plan, 9, 4));
});

test('layouts do not pile up', () => {
  const plan = planner();
  const roll = dice(1);
  for (let round = 0; round < 5000; round++) check(run(plan, 5 + 2 ** roll(20) + roll(1000), 2 ** roll(20)));
  const count = (place) => [...place.layouts.values()].flat().reduce((sum, { after }) => sum + 1 + count(after), 0);
  assert.ok(count(plan.root.place) <= 4096);
});

test('a run for which memory is short is tried again without room', async () => {
  const plan = planner();
  const model = Object.assign(Object.create(Model.prototype), { table: new ProgramTable(), runs: 0 });
  model.table.executors.set('', { plan });
  model.runOnce = async () => {
    model.runs++;
    if (plan.hasSpareCapacity) throw new OutOfMemory('no room');
    return { n: model.runs };
  };
  for (const n of [500, 510, 530]) run(plan, n, 9);
  assert.deepEqual(await model.attempt({}, {}), { n: 2 });
  model.runOnce = async () => { throw new OutOfMemory('no room'); };
  await assert.rejects(model.attempt({}, {}), OutOfMemory);
});

test('a run that finds the same buffers where others ended begins at one place, so its layouts are known', () => {
  const plan = planner();
  const { after } = run(plan, 8, 8);
  const start = plan.startFrom(after.place, [C]);
  assert.deepEqual([...start.place.spans.keys()], [C]);
  assert.equal(plan.startFrom(after.place.copy(), [C]), start);
  assert.notEqual(plan.startFrom(after.place, [C, D]), start);
});

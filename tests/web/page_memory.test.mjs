// Memory that all sessions of a page share: the budget, and idle models that lose their memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { env } from 'onnxruntime-common';
import { OutOfMemory } from '../../web/common/errors.js';
import { on } from '../../web/common/events.js';
import { connectMemory, disconnectMemory } from '../../web/page/engine/page_memory.js';
import { budgets, hold } from '../../web/run/budgets.js';
import { Memory } from '../../web/run/memory.js';
import { freeIdle, holders, withRoom } from '../../web/session/idle_models.js';

const PAGE = 65536;

test("the page's limits: bytes, told to the worker, with events that count both threads", () => {
  for (const bad of [0, -1, 1.5, NaN, '5', {}]) assert.throws(() => { env.memoryLimit = bad; }, { type: 'InvalidInput' });
  const told = [];
  const heard = [];
  const end = on('memory', ({ memory, share, used, limit }) => heard.push([memory, share, used, limit]));
  const caller = { call: async (_, memory) => { told.push(memory); } };
  connectMemory(caller);
  hold('linear', 10);
  assert.deepEqual([told, env.memoryLimit], [[], undefined]); // nobody limits it
  env.memoryLimit = 100;
  hold('linear', 20);
  for (const linear of [45, 60, 30, 40]) caller.onHeld({ linear, gpu: 0 });
  hold('linear', -30);
  assert.deepEqual(heard, [['linear', 0.7, 75, 100], ['linear', 0.9, 90, 100], ['linear', 0.7, 70, 100]]);
  assert.deepEqual(told.map(({ limits, elsewhere }) => [limits.linear, elsewhere.linear]), [[100, 10], [100, 30], [100, 0]]);
  const other = { told: [], call: async (_, { elsewhere }) => { other.told.push(elsewhere.linear); } };
  connectMemory(other);
  caller.onHeld({ linear: 50, gpu: 0 });
  other.onHeld({ linear: 7, gpu: 0 });
  assert.deepEqual([budgets.linear.elsewhere, other.told, told.at(-1).elsewhere.linear], [57, [50], 7]);
  for (const ended of [caller, other]) disconnectMemory(ended);
  assert.equal(budgets.linear.elsewhere, 0);
  for (const none of [null, Infinity, undefined]) {
    env.memoryLimit = none;
    assert.equal(env.memoryLimit, undefined);
  }
  end();
});

test('linear memories count, and none grows beyond the limit', () => {
  const before = budgets.linear.used;
  const [one, two] = [Memory.take(false), Memory.take(false)];
  one.add([PAGE], false);
  budgets.linear.limit = before + 5 * PAGE;
  two.ensure(3 * PAGE - 64);
  assert.equal(budgets.linear.used - before, 5 * PAGE);
  assert.throws(() => one.ensure(2 * PAGE), { type: 'OutOfMemory', message: /^65600 more bytes of memory are needed, sessions hold 327680, env.memoryLimit is/ });
  two.giveBack();
  two.giveBack(); // counts once
  one.ensure(2 * PAGE);
  one.giveBack();
  budgets.linear.limit = Infinity;
  assert.equal(budgets.linear.used, before);
});

/** A model that holds `size` of `room.left` while it works and afterwards. */
function model(room, size, name, log = []) {
  const made = {
    lastUsed: 0, held: 0, name,
    free() {
      if (!made.held) return false;
      log.push(`freed ${name}`);
      room.left += made.held;
      made.held = 0;
      return true;
    },
    run: (work = async () => {}) => withRoom(made, async () => {
      if (!made.held) {
        if (room.left < size) throw Object.assign(new OutOfMemory('full'), { ofAll: true });
        room.left -= size;
        made.held = size;
      }
      await work();
      log.push(`ran ${name}`);
    }),
  };
  holders.add(made);
  return made;
}

test('the model that is idle longest is freed first, and one that works never', async () => {
  const room = { left: 2 };
  const log = [];
  const [a, b, c] = ['a', 'b', 'c'].map((name) => model(room, 1, name, log));
  await a.run();
  await new Promise((resolve) => setTimeout(resolve, 2));
  await b.run();
  await c.run();
  await new Promise((resolve) => setTimeout(resolve, 2));
  await a.run();
  assert.deepEqual(log, ['ran a', 'ran b', 'freed a', 'ran c', 'freed b', 'ran a']);
  let end = () => {};
  const busy = c.run(() => new Promise((resolve) => { end = resolve; }));
  await b.run();
  assert.deepEqual(log.slice(6), ['freed a', 'ran b']);
  end();
  await busy;
  while (freeIdle());
  holders.clear();
});

test('where all work at once they wait for each other, and only what never fits fails', async () => {
  const room = { left: 3 };
  const models = [2, 2, 2, 3, 1].map((size, n) => model(room, size, n));
  const turn = () => new Promise((resolve) => setTimeout(resolve));
  await Promise.all(models.map(async (one) => {
    for (let n = 0; n < 5; n++) await one.run(turn);
  }));
  await assert.rejects(model(room, 4, 'large').run(), OutOfMemory);
  await models[0].run();
  const own = models[4].run(async () => { throw new OutOfMemory('a limit of its own'); });
  await assert.rejects(own, OutOfMemory);
  assert.ok(models[0].held); // it would not help
  while (freeIdle());
  assert.equal(room.left, 3);
  holders.clear();
});

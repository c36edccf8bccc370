// The GPU memory that plans hold does not grow without bound as shapes change.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuRunner } from '../../web/gpu/runner.js';
import { GPU } from '../../web/runtime/arena.js';
import { Planner } from '../../web/runtime/planner.js';

class Buffer {
  static held = 0;

  constructor({ size }) {
    this.size = size;
    Buffer.held += size;
  }
  destroy() { Buffer.held -= this.size; }
}

const BLOCK = [{ node: 'n', kernel: '0', buffers: [7], params: [] }];

/** A planner on a GPU that notes what is asked of it: bind groups, of which the first buffer, and writes. */
function planned() {
  const found = { groups: [], writes: [], copies: 0 };
  const device = {
    createBuffer: (descriptor) => new Buffer(descriptor),
    createBindGroup: ({ entries }) => found.groups.push(entries[0].resource),
    createCommandEncoder: () => ({ copyBufferToBuffer: () => found.copies++, finish() {} }),
    queue: { writeBuffer: (buffer, at, words) => found.writes.push([at, words[0]]) },
  };
  const gpu = {
    adapter: { buffer_bytes: 2 ** 28, binding_bytes: 2 ** 27, workgroups: 65535 }, device,
    catchErrors: (action) => action(), layout: () => ({}), submit() {}, tensors: { live: new Set(), freePool() {} },
  };
  const runner = new GpuRunner(gpu, [{ buffers: 1, params: 0, span: 1 }], []);
  runner.memory.buffers = [{ name: 'arena', destroy() {} }];
  const memory = { limit: 2 ** 32, bytes: new Uint8Array(65536), ensure() {} };
  const plan = new Planner({ buffers: [], blocks: [], guards: [], symbols: {} }, memory, runner, 8);
  return { plan, runner, found, gpu };
}

test('parameter blocks of new shapes do not pile up', () => {
  const { plan, runner } = planned();
  const blocks = Array.from({ length: 4096 }, () => [1]); // a MiB
  const step = () => {
    plan.limit();
    runner.params.put(blocks);
    return Buffer.held;
  };
  assert.equal(Math.max(...Array.from({ length: 100 }, step)), 8 * 2 ** 20);
  runner.params.put(blocks.concat(...Array.from({ length: 8 }, () => blocks)));
  plan.clear(); // as large as that none is kept
  assert.equal(Buffer.held, 0);
});

test('a runner that is released leaves none', () => {
  const { runner } = planned();
  runner.ready(runner.prepare(BLOCK, [[256]], [GPU, 1]));
  assert.deepEqual([Buffer.held, runner.groups.cache.size], [2 ** 16, 1]);
  runner.release();
  assert.deepEqual([Buffer.held, runner.groups.cache.size], [0, 0]);
});

test('parameter blocks have places of their own until plans are dropped; then old places are bound no more', () => {
  const { plan, runner, found } = planned();
  const [first, second] = [5, 6].map((work) => runner.prepare(BLOCK, [[256]], [GPU, work]));
  for (const step of [first, second, first]) runner.ready(step);
  assert.deepEqual(found.writes.splice(0), [[0, 5], [256, 6]]);
  assert.deepEqual([[...first.offsets], [...second.offsets], found.groups.length], [[0], [256], 1]);
  plan.clear();
  for (const step of [second, first]) runner.ready(step);
  assert.deepEqual(found.writes, [[0, 6], [256, 5]]);
  assert.equal(found.groups.length, 1);
});

test('as the buffer of parameter blocks grows, all is bound anew, and blocks stay', () => {
  const { runner, found } = planned();
  const first = runner.prepare(BLOCK, [[256]], [GPU, 5]);
  runner.ready(first);
  runner.params.put(Array.from({ length: 256 }, () => [1]));
  assert.equal(found.copies, 1);
  found.writes = [];
  runner.ready(first);
  assert.deepEqual([found.groups.length, [...first.offsets], found.writes], [2, [0], []]);
});

test('as the arena grows, bind groups are made anew, and blocks stay', () => {
  const { runner, found } = planned();
  const step = runner.prepare(BLOCK, [[256]], [GPU, 5]);
  runner.ready(step);
  runner.memory.ensure(GPU + 512);
  runner.ready(step);
  assert.deepEqual([found.groups.length, found.groups[1].buffer, found.writes], [2, runner.memory.buffers[0], [[0, 5]]]);
});

test('kept plans do not keep buffers of the page, and those of our tensors are bound once', () => {
  const { runner, found, gpu } = planned();
  const buffers = Object.fromEntries(['a', 'b', 'ours'].map((name) => [name, { name, size: 512 }]));
  gpu.tensors.live.add(buffers.ours);
  const step = runner.prepare(BLOCK, [[256]], [GPU, 1]);
  const bound = (name) => {
    if (name) runner.memory.ownBuffers.set(7, { buffer: buffers[name], size: 6 });
    runner.ready(step);
    runner.releaseBorrowed();
    return found.groups.splice(0).map(({ buffer, size }) => `${buffer.name} ${size}`);
  };
  const names = ['a', 'a', '', '', 'b', '', 'ours', '', 'ours'];
  assert.deepEqual(names.map(bound), [['a 8'], ['a 8'], ['arena 256'], [], ['b 8'], [], ['ours 512'], [], []]);
  bound('b');
  assert.deepEqual([step.groups, step.bound[0].ownBuffers, runner.memory.ownBuffers.size], [[null], [null], 0]);
});

test('after a run that failed all is bound anew, and the buffer of parameter blocks, which may be invalid, made anew', () => {
  const { runner, found } = planned();
  const step = runner.prepare(BLOCK, [[256]], [GPU, 1]);
  runner.ready(step);
  const [{ buffer }, { held }] = [runner.params, Buffer];
  runner.transfers({ header: { inputs: [], outputs: [], blocks: [{ steps: [] }, { steps: [] }] } }).abandon();
  runner.ready(step);
  assert.deepEqual([found.groups.length, found.writes, Buffer.held], [2, [[0, 1], [0, 1]], held]);
  assert.notEqual(runner.params.buffer, buffer);
});

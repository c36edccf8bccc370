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
  const pass = { setPipeline() {}, setBindGroup() {}, dispatchWorkgroups() {}, end() {} };
  const device = {
    createBuffer: (descriptor) => new Buffer(descriptor),
    createBindGroup: ({ entries }) => found.groups.push(entries[0].resource),
    createCommandEncoder: () => ({ copyBufferToBuffer: () => found.copies++, beginComputePass: () => pass, finish() {} }),
    queue: { writeBuffer: (buffer, at, words, first, count) => found.writes.push([at, [...words.subarray(first, first + count)].filter(Boolean)]) },
  };
  const gpu = {
    adapter: { buffer_bytes: 2 ** 28, binding_bytes: 2 ** 27, workgroups: 65535 }, device,
    catchErrors: (action) => action(), layout: () => ({}), submit() {}, tensors: { live: new Set(), freePool() {} }, memories: new Map(),
  };
  const runner = new GpuRunner(gpu, [{ buffers: 1, params: 0, span: 1 }], []);
  runner.memory.buffers = [{ name: 'arena', destroy() {} }];
  const memory = { limit: 2 ** 32, bytes: new Uint8Array(65536), ensure() {} };
  const plan = new Planner({ buffers: [], blocks: [], guards: [], symbols: {} }, memory, runner, 8);
  return { plan, runner, found, gpu };
}

/** A layout, and a step of these shapes in it. */
const layout = () => ({ sizes: [[256]], bindings: null });
const prepared = (runner, work = 1, place = layout()) => runner.prepare(BLOCK, place, [GPU, work]);
/** Encodes a step, and submits it unless told otherwise. */
const ran = (runner, step, submits = true) => {
  runner.run(step);
  if (submits) runner.memory.flush();
};

test('parameter blocks of new layouts do not pile up', () => {
  const { plan, runner } = planned();
  const step = () => {
    plan.limit();
    runner.params.reserve(1 << 20);
    return Buffer.held;
  };
  assert.equal(Math.max(...Array.from({ length: 100 }, step)), 8 * 2 ** 20);
  runner.params.reserve(9 << 20);
  plan.clear(); // as large as that none is kept
  assert.equal(Buffer.held, 0);
});

test('a runner that is released leaves none', () => {
  const { runner } = planned();
  ran(runner, prepared(runner));
  assert.deepEqual([Buffer.held, runner.groups.cache.size], [2 ** 16, 1]);
  runner.release();
  assert.deepEqual([Buffer.held, runner.groups.cache.size], [0, 0]);
});

test('shapes of a layout take turns in one place, and have places of their own within a submission', () => {
  const { plan, runner, found } = planned();
  const place = layout();
  const [first, second] = [5, 6].map((work) => prepared(runner, work, place));
  for (const step of [first, first, second, second, first]) ran(runner, step);
  assert.deepEqual(found.writes.splice(0), [[0, [5]], [0, [6]], [0, [5]]]);
  for (const step of [second, first, second]) ran(runner, step, false);
  runner.memory.flush();
  assert.deepEqual(found.writes.splice(0), [[0, [6, 5]]], 'in one write');
  assert.deepEqual([...first.offsets, ...second.offsets, found.groups.length], [256, 0, 1]);
  plan.clear();
  ran(runner, second);
  assert.deepEqual([found.writes, [...second.offsets], found.groups.length], [[[0, [6]]], [0], 1]);
});

test('as the buffer of parameter blocks grows, all is bound anew, and blocks stay', () => {
  const { runner, found } = planned();
  const first = prepared(runner, 5);
  ran(runner, first);
  runner.params.reserve(1 << 16);
  found.writes = [];
  ran(runner, first);
  assert.deepEqual([found.copies, found.groups.length, [...first.offsets], found.writes[0][1][0]], [0, 2, [0], 5]);
});

test('as the arena grows, bind groups are made anew, and blocks stay', () => {
  const { runner, found } = planned();
  const step = prepared(runner, 5);
  ran(runner, step);
  runner.memory.ensure(GPU + 512);
  ran(runner, step);
  assert.deepEqual([found.groups.length, found.groups[1].buffer, found.writes], [2, runner.memory.buffers[0], [[0, [5]]]]);
});

test('kept plans do not keep buffers of the page, and those of our tensors are bound once', () => {
  const { runner, found, gpu } = planned();
  const buffers = Object.fromEntries(['a', 'b', 'ours'].map((name) => [name, { name, size: 512 }]));
  gpu.tensors.live.add(buffers.ours);
  const step = prepared(runner);
  const bound = (name) => {
    if (name) runner.memory.ownBuffers.set(7, { buffer: buffers[name], size: 6 });
    ran(runner, step);
    runner.releaseBorrowed();
    return found.groups.splice(0).map(({ buffer, size }) => `${buffer.name} ${size}`);
  };
  const names = ['a', 'a', '', '', 'b', '', 'ours', '', 'ours'];
  assert.deepEqual(names.map(bound), [['a 8'], ['a 8'], ['arena 256'], [], ['b 8'], [], ['ours 512'], [], []]);
  bound('b');
  const { groups, own } = step.bindings;
  assert.deepEqual([groups, own, runner.memory.ownBuffers.size, runner.borrowed.size], [[null], [null], 0, 0]);
});

test('after a run that failed all is bound anew, and the buffer of parameter blocks, which may be invalid, made anew', () => {
  const { runner, found } = planned();
  const step = prepared(runner);
  ran(runner, step);
  const [{ buffer }, { held }] = [runner.params, Buffer];
  runner.transfers({ header: { inputs: [], outputs: [], blocks: [{ steps: [] }, { steps: [] }] } }).abandon();
  ran(runner, step);
  assert.deepEqual([found.groups.length, found.writes, Buffer.held], [2, [[0, [1]], [0, [1]]], held]);
  assert.notEqual(runner.params.buffer, buffer);
});

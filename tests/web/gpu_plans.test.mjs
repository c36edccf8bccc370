// What plans hold on the GPU does not pile up as shapes change.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GpuRunner } from '../../web/gpu/runner.js';
import { Planner } from '../../web/run/plan.js';

class Buffer {
  static held = 0;

  constructor({ size }) {
    this.bytes = new ArrayBuffer(size);
    Buffer.held += size;
  }
  getMappedRange() { return this.bytes; }
  unmap() {}
  destroy() { Buffer.held -= this.bytes.byteLength; }
}

/** A planner on the GPU, whose steps need a MiB of parameters each. */
function planned() {
  const gpu = {
    adapter: { buffer_bytes: 2 ** 28, binding_bytes: 2 ** 27, workgroups: 65535 },
    device: { createBuffer: (descriptor) => new Buffer(descriptor) },
    catchErrors: (action) => action(),
  };
  const runner = new GpuRunner(gpu, [], []);
  const memory = { limit: 2 ** 32, bytes: new Uint8Array(65536), ensure() {} };
  const plan = new Planner({ buffers: [], blocks: [], guards: [] }, memory, runner);
  const step = () => {
    plan.limit();
    runner.prepare([], [], []).params = runner.parameters([[1]], [0], 2 ** 20);
    return Buffer.held;
  };
  return { plan, runner, step };
}

test('parameter blocks of new shapes do not pile up', () => {
  const { plan, step } = planned();
  assert.equal(Math.max(...Array.from({ length: 100 }, step)), 5 * 2 ** 20);
  plan.clear();
  assert.equal(Buffer.held, 0);
});

test('a runner that is released leaves none', () => {
  const { runner, step } = planned();
  assert.equal(step(), 2 ** 20);
  runner.release();
  assert.equal(Buffer.held, 0);
});

test('kept plans do not keep buffers of the page', () => {
  const { runner } = planned();
  const made = [];
  Object.assign(runner.gpu.device, { createBindGroup: ({ entries }) => made.push(entries[0].resource.buffer) });
  runner.gpu.layout = () => ({});
  runner.shaders = [{ buffers: 1, params: 0, span: 1 }];
  runner.memory.buffers = ['arena'];
  const step = runner.prepare([{ node: 'n', kernel: '0', buffers: [7], params: [] }], [[16]], [2 ** 40, 1]);
  const bound = (buffer) => {
    if (buffer) runner.memory.apart.set(7, buffer);
    runner.ready(step);
    runner.giveBack();
    return made.splice(0);
  };
  assert.deepEqual(['a', 'a', '', '', 'b', ''].map(bound), [['a'], ['a'], ['arena'], [], ['b'], ['arena']]);
  bound('c');
  assert.deepEqual([step.groups, step.bound[0].apart, runner.memory.apart.size], [[null], [null], 0]);
});

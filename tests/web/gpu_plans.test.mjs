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

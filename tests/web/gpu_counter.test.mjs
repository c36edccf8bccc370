// What `bench dispatches` counts when the calls are made by hand.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readFileSync } from 'node:fs';
import vm from 'node:vm';

const STORAGE = 128;
const MAP_READ = 1;

/** Classes with these methods, each of which returns an object. */
const fake = (...names) => class { static { for (const name of names) this.prototype[name] = () => ({}); } };

function counted() {
  const place = vm.createContext({
    GPUQueue: fake('submit', 'writeBuffer'), GPUBuffer: fake('mapAsync'),
    GPUDevice: fake('createBuffer', 'createShaderModule', 'createComputePipeline', 'createComputePipelineAsync', 'createBindGroup'),
    GPUCommandEncoder: fake('beginComputePass', 'copyBufferToBuffer'),
    GPUComputePassEncoder: fake('setBindGroup', 'dispatchWorkgroups', 'dispatchWorkgroupsIndirect'),
  });
  vm.runInContext(readFileSync(new URL('../../kit/pages/gpu_counter.js', import.meta.url), 'utf8'), place);
  return place;
}

test('bytes of the storage bindings that a dispatch has', () => {
  const { GPUDevice, GPUComputePassEncoder, GPUCommandEncoder, gpuCounts } = counted();
  const buffer = { usage: STORAGE, size: 1000 };
  const entries = [{ buffer }, { buffer, offset: 200 }, { buffer, offset: 0, size: 8 }, { buffer: { usage: 64, size: 256 } }];
  const group = new GPUDevice().createBindGroup({ entries: [...entries.map((resource) => ({ resource })), { resource: buffer }] });
  const pass = Object.setPrototypeOf(new GPUCommandEncoder().beginComputePass(), GPUComputePassEncoder.prototype);
  assert.equal(gpuCounts.passes, 1);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(1);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(1);
  assert.deepEqual([gpuCounts.dispatches, gpuCounts.bound], [2, 2 * (1000 + 800 + 8 + 1000)]);
});

test('bytes that are written, copied and read', () => {
  const { GPUQueue, GPUBuffer, GPUDevice, GPUCommandEncoder, gpuCounts } = counted();
  const queue = new GPUQueue();
  queue.writeBuffer({}, 0, new Float32Array(10), 2, 3); // elements
  queue.writeBuffer({}, 0, new Float32Array(10), 4);
  queue.writeBuffer({}, 0, new ArrayBuffer(10), 4);
  new GPUDevice().createBuffer({ size: 100, mappedAtCreation: true });
  new GPUDevice().createBuffer({ size: 100 });
  assert.equal(gpuCounts.written, 12 + 24 + 6 + 100);
  new GPUCommandEncoder().copyBufferToBuffer({ size: 7 }, { usage: STORAGE });
  new GPUCommandEncoder().copyBufferToBuffer({ size: 7 }, 0, { usage: STORAGE }, 0, 4);
  new GPUCommandEncoder().copyBufferToBuffer({ size: 7 }, 0, { usage: MAP_READ }, 0, 4);
  assert.equal(gpuCounts.copied, 11);
  const staging = Object.assign(new GPUBuffer(), { size: 64 });
  staging.mapAsync(1, 0, 16);
  staging.mapAsync(1);
  assert.deepEqual([gpuCounts.readbacks, gpuCounts.read], [2, 80]);
});

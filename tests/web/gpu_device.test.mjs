// The GPU of a worker: devices of adapters that refuse some of what they offer, and whose errors are reported late.

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { acquireGpu, Gpu, whyNoGpu } from '../../web/gpu/device.js';
import { GpuMemory } from '../../web/gpu/memory.js';

const { navigator } = globalThis;
afterEach(() => Object.defineProperty(globalThis, 'navigator', { value: navigator, configurable: true }));

class Device extends EventTarget {
  lost = new Promise(() => {});
  features = new Set();
  limits = {};
  destroy() {}
}

/** A browser whose adapter asks `refuses` for the reason to give no device with these features and limits. */
function browser(refuses) {
  const asked = [];
  const adapter = {
    features: new Set(['shader-f16']), limits: { maxBufferSize: 2 ** 30 }, info: { vendor: 'trial' },
    async requestDevice({ requiredFeatures = [], requiredLimits = {} } = {}) {
      const wanted = [requiredFeatures.length > 0, Object.keys(requiredLimits).length > 0];
      asked.push(wanted);
      const reason = refuses(...wanted);
      if (reason) throw new DOMException(reason, 'OperationError');
      return new Device();
    },
  };
  const gpu = { requestAdapter: async () => adapter }; // without wgslLanguageFeatures, as older browsers
  Object.defineProperty(globalThis, 'navigator', { value: { gpu }, configurable: true });
  return asked;
}

for (const [what, refuses, count] of [
  ['limits', (_, hasLimits) => hasLimits && 'no such limit', 3], ['features', (hasFeatures) => hasFeatures && 'no such feature', 2],
  ['both', (hasFeatures, hasLimits) => (hasFeatures || hasLimits) && 'no', 4],
]) {
  test(`an adapter that refuses its own ${what} gives a device without them`, async () => {
    const asked = browser(refuses);
    const gpu = await acquireGpu();
    assert.deepEqual([gpu?.adapter.name, asked.length], ['trial', count]);
    gpu.lost = 'over'; // the next test opens another
  });
}

for (const [what, requestAdapter, text] of [
  ['refuses every device', null, /refuses a WebGPU device: disabled by policy/],
  ['refuses the adapter', async () => { throw new Error('blocked'); }, /refuses a WebGPU device: blocked/],
  ['has no adapter', async () => null, /^this browser has no WebGPU adapter$/],
]) {
  test(`why there is no GPU: the browser ${what}`, async () => {
    browser(() => 'disabled by policy');
    if (requestAdapter) globalThis.navigator.gpu.requestAdapter = requestAdapter;
    assert.equal(await acquireGpu(), null);
    assert.match(whyNoGpu, text);
  });
}

test('an object that the GPU refuses names its node, which recovery moves', async () => {
  const gpu = new Gpu(new Device(), {}, {});
  const results = [{ message: 'too few entries for "MatMul "a" kernel 1"' }, null];
  Object.assign(gpu.device, { pushErrorScope() {}, popErrorScope: async () => results.shift() });
  const pending = [];
  gpu.catchErrors(() => {}, pending, ['Add "b" kernel 0', 'MatMul "a" kernel 1']);
  const [error] = await Promise.all(pending);
  assert.deepEqual([error.type, Object.keys(error.atFault)], ['ExecutionError', ['MatMul "a"']]);
});

test('an error that is reported late is of the session whose commands it names', async () => {
  const gpu = new Gpu(new Device(), { buffer_bytes: 2 ** 28, binding_bytes: 2 ** 27 }, {});
  const [one, other] = [new GpuMemory(gpu), new GpuMemory(gpu)];
  let encoder = '';
  gpu.device.createCommandEncoder = ({ label }) => { encoder = label; };
  const labelOf = (memory) => {
    memory.encoder = null;
    memory.commands();
    return encoder;
  };
  const report = (message) => gpu.device.dispatchEvent(Object.assign(new Event('uncapturederror'), { error: { message } }));
  const counts = () => [one, other, gpu].map(({ pending }) => pending.splice(0).length);
  const first = labelOf(one);
  report(`[Invalid BindGroup "Add"] is invalid. - While finishing [CommandEncoder "${first}"]`);
  assert.deepEqual(counts(), [1, 0, 0]);
  one.abandon();
  report(`[Invalid CommandBuffer from CommandEncoder "${first}"] is invalid`);
  assert.deepEqual(counts(), [0, 0, 0]); // its run has failed
  report(`[CommandEncoder "${labelOf(one)}"]`);
  report(`[Buffer "${one.label('arena')}"]`);
  report(`[CommandEncoder "${labelOf(other)}"]`);
  report('of none that is known');
  assert.deepEqual(counts(), [2, 1, 1]);
  other.release();
  report(`[CommandEncoder "${encoder}"]`);
  assert.deepEqual(counts(), [0, 0, 0]);
});

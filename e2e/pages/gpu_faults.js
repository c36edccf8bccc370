// Faults of the GPU, in the worker of a page (e2e/test_recovery.py): the adapter seems to be hardware, and `inject`
// replaces methods of WebGPU until `heal`.

{
  Object.defineProperty(GPUAdapter.prototype, 'info', { configurable: true, get: () => ({ vendor: 'test' }) });
  const saved = [];
  const devices = [];
  const replace = (prototype, name, act) => {
    const real = prototype[name];
    saved.push(() => { prototype[name] = real; });
    prototype[name] = function (...args) { return act((...given) => real.apply(this, given), ...args); };
  };
  const keep = async (real, ...args) => {
    const device = await real(...args);
    devices.push(device);
    return device;
  };
  replace(GPUAdapter.prototype, 'requestDevice', keep);
  saved.pop();
  let lost = Promise.resolve();
  const lose = () => {
    const device = devices.at(-1);
    device?.destroy();
    if (device) lost = device.lost;
  };
  const refuse = (label) => {
    lose(); // with the pipelines of earlier sessions
    replace(GPUDevice.prototype, 'createShaderModule', (real, descriptor) => {
      const isBroken = descriptor.label.includes(label);
      return real(isBroken ? { ...descriptor, code: descriptor.code.replaceAll('fn main', 'nonsense') } : descriptor);
    });
  };
  const refuseNext = (happens) => replace(GPUDevice.prototype, 'createShaderModule', (real, descriptor) => (
    real(happens() ? { ...descriptor, code: 'nonsense' } : descriptor)));
  const { createBuffer, pushErrorScope, popErrorScope } = GPUDevice.prototype;
  const noBuffers = (isRefused) => {
    const scopes = [];
    replace(GPUDevice.prototype, 'pushErrorScope', (real, filter) => { scopes.push({ filter }); real(filter); });
    replace(GPUDevice.prototype, 'popErrorScope', (real) => {
      const { error } = scopes.pop();
      const result = real();
      return error ? result.then(() => error) : result;
    });
    replace(GPUDevice.prototype, 'createBuffer', (real, descriptor) => {
      const full = scopes.find(({ filter }) => filter === 'out-of-memory');
      if (!descriptor.label.startsWith('arena') || !full || !isRefused(descriptor.size)) return real(descriptor);
      full.error = new GPUOutOfMemoryError('made by the test');
      const device = devices.at(-1);
      pushErrorScope.call(device, 'validation');
      const invalid = createBuffer.call(device, { ...descriptor, size: 2 ** 50 });
      popErrorScope.call(device);
      return invalid;
    });
  };
  const never = () => new Promise(() => {});
  const kinds = {
    'refused shader': () => refuse('first'),
    'refused shaders': () => refuse(''),
    'nth shader': (_, happens) => refuseNext(happens),
    'slow shader': () => {
      lose();
      replace(GPUDevice.prototype, 'createComputePipelineAsync', (real, descriptor) => (
        descriptor.label.includes('first') ? never() : real(descriptor)));
    },
    full: (_, happens) => noBuffers(happens),
    'taken memory': (_, __, taken) => noBuffers((size) => taken > 0 && size > 100 * 1024),
    'full after work': (_, happens) => {
      const scopes = [];
      let isSubmitted = false;
      let skipped = 1; // the copy of buffers that the run changes
      replace(GPUQueue.prototype, 'submit', (real, ...args) => { real(...args); isSubmitted = true; });
      replace(GPUDevice.prototype, 'pushErrorScope', (real, filter) => {
        scopes.push(filter);
        isSubmitted = false;
        real(filter);
      });
      replace(GPUDevice.prototype, 'popErrorScope', (real) => {
        if (scopes.pop() !== 'out-of-memory') return real();
        const isFull = isSubmitted && skipped-- <= 0 && happens();
        return real().then((error) => (isFull ? new GPUOutOfMemoryError('made by the test') : error));
      });
    },
    hang: () => replace(GPUBuffer.prototype, 'mapAsync', never),
    lost(when, happens) {
      if (when !== 'run') lose();
      const loseAfter = (real, ...args) => {
        const result = real(...args);
        const loseNow = () => happens() && lose();
        if (result) result.then(loseNow);
        else loseNow();
        return result;
      };
      if (when === 'creation') replace(GPUAdapter.prototype, 'requestDevice', loseAfter);
      if (when === 'run') replace(GPUQueue.prototype, 'submit', loseAfter);
    },
    'silent adapter': (when, happens) => {
      kinds.lost(when, happens);
      replace(Object.getPrototypeOf(navigator.gpu), 'requestAdapter', never);
    },
    'silent device': (when, happens) => {
      kinds.lost(when, happens);
      replace(GPUAdapter.prototype, 'requestDevice', never);
    },
    gone(when, happens) {
      kinds.lost(when, happens);
      replace(Object.getPrototypeOf(navigator.gpu), 'requestAdapter', async () => null);
    },
  };
  globalThis.heal = () => { for (const undo of saved.splice(0).reverse()) undo(); };
  /** The fault happens `times` times, 0 for ever, after the first `skipped` times that it could. */
  globalThis.inject = async (kind, when, times, taken, skipped = 0) => {
    let [left, early] = [times || Infinity, skipped];
    kinds[kind](when, () => early-- <= 0 && left-- > 0, taken);
    await lost; // under load the browser tells it late
  };
}

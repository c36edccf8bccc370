// Counts the calls of WebGPU: a classic script that runs at the beginning of a page or a worker, before any runtime is
// loaded. `gpuCounts` has the sums since it was last cleared, and in `longest wait` the most milliseconds from a request
// to learn when submitted work is done until the answer.
{
  /** @type {Record<string, number>} */
  const counts = {};
  /** Bytes of the storage buffers of a bind group. @type {WeakMap<GPUBindGroup, number>} */
  const bytesOf = new WeakMap();
  /** Bytes bound in a pass, by the group's number. @type {WeakMap<object, number[]>} */
  const bound = new WeakMap();
  const add = (/** @type {string} */ name, amount = 1) => { counts[name] = (counts[name] ?? 0) + amount; };

  /**
   * Calls `note` before a method with its arguments, or after it with the result in front.
   * @param {{ prototype: any }} type @param {string} name @param {(...args: any[]) => void} note @param {boolean} [after]
   */
  const listen = ({ prototype }, name, note, after = false) => {
    const method = prototype[name];
    prototype[name] = function (/** @type {any[]} */ ...args) {
      if (!after) note(this, ...args);
      const result = method.apply(this, args);
      if (after) note(result, ...args);
      return result;
    };
  };

  const STORAGE = 128; // https://www.w3.org/TR/webgpu/#buffer-usage
  const MAP_READ = 1;
  const READ = 1; // GPUMapMode
  const transfers = () => {
    listen(GPUQueue, 'submit', (_, buffers) => {
      add('submits');
      add('command buffers', [...buffers].length);
    });
    listen(GPUQueue, 'writeBuffer', (_, _buffer, _at, data, begin = 0, size = undefined) => {
      const element = data.BYTES_PER_ELEMENT ?? 1;
      add('writes');
      add('written', size === undefined ? data.byteLength - begin * element : size * element);
    });
    listen(GPUDevice, 'createBuffer', (_, { size, mappedAtCreation }) => {
      add('buffers');
      if (mappedAtCreation) add('written', size);
    });
    listen(GPUQueue, 'onSubmittedWorkDone', (done) => {
      const start = performance.now();
      done.then(() => { counts['longest wait'] = Math.max(counts['longest wait'] ?? 0, performance.now() - start); }, () => {});
    }, true);
    listen(GPUBuffer, 'destroy', () => add('destroyed'));
    listen(GPUBuffer, 'mapAsync', (buffer, mode, at = 0, size = buffer.size - at) => {
      if (mode === READ) add('readbacks');
      add(mode === READ ? 'read' : 'written', size);
    });
    listen(GPUCommandEncoder, 'copyBufferToBuffer', (_, source, ...rest) => {
      const [target, size] = typeof rest[0] === 'number' ? [rest[1], rest[3]] : [rest[0], rest[1]];
      if (!(target.usage & MAP_READ)) add('copied', size ?? source.size); // the other bytes are counted when they are read
    });
  };

  const creations = () => {
    listen(GPUDevice, 'createShaderModule', (_, { code }) => {
      add('shaders');
      add('source', code.length);
    });
    for (const name of ['createComputePipeline', 'createComputePipelineAsync']) listen(GPUDevice, name, () => add('pipelines'));
    listen(GPUDevice, 'createBindGroup', (group, { entries }) => {
      const sizes = [...entries].map(({ resource }) => {
        const { buffer, offset = 0, size = undefined } = 'buffer' in resource ? resource : { buffer: resource };
        return buffer.usage & STORAGE ? size ?? buffer.size - offset : 0;
      });
      bytesOf.set(group, sizes.reduce((sum, size) => sum + size, 0));
      add('bind groups');
    }, true);
  };

  const dispatches = () => {
    listen(GPUCommandEncoder, 'beginComputePass', (pass) => {
      bound.set(pass, []);
      add('passes');
    }, true);
    listen(GPUComputePassEncoder, 'setBindGroup', (pass, number, group) => {
      /** @type {number[]} */ (bound.get(pass))[number] = bytesOf.get(group) ?? 0;
    });
    for (const name of ['dispatchWorkgroups', 'dispatchWorkgroupsIndirect']) {
      listen(GPUComputePassEncoder, name, (pass) => {
        add('dispatches');
        add('bound', /** @type {number[]} */ (bound.get(pass)).reduce((sum, bytes) => sum + bytes, 0));
      });
    }
  };

  if (globalThis.GPUDevice) for (const part of [transfers, creations, dispatches]) part();
  Object.assign(globalThis, { gpuCounts: counts });
}

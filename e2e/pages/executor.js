import { Executor } from '/web/run/executor.js';
import { explain } from '/web/runtime/explain.js';
import { Gpu } from '/web/gpu/device.js';
import { loadProgram } from '/web/run/load_program.js';
import { Memory } from '/web/run/memory.js';
import { toPayload } from '/web/common/errors.js';

/** Runs a hand-written Program several times; tensors are [dims, numbers], all float32 but where `types` says else. */
globalThis.runProgram = async ({ header, blob, file, runs, types = {} }) => {
  const bytes = Uint8Array.from(file);
  const read = (offset, size) => bytes.subarray(offset, offset + size);
  const shared = globalThis.crossOriginIsolated;
  const executor = await Executor.create({ header, blob: Uint8Array.from(blob), python: null }, read, null, { shared });
  const views = { int64: (data) => BigInt64Array.from(data, BigInt), bool: (data) => Uint8Array.from(data) };
  const results = runs.map((feeds) => {
    const wire = Object.entries(feeds).map(([name, [dims, data]]) => {
      const type = types[name] ?? 'float32';
      return [name, { type, dims, data: views[type] ? views[type](data) : Float32Array.from(data) }];
    });
    try {
      const out = executor.run(Object.fromEntries(wire), Object.fromEntries(header.outputs.map(({ name }) => [name, null])));
      return Object.fromEntries(Object.entries(out).map(([name, { dims, data }]) => [name, [dims, Array.from(data, Number)]]));
    } catch (error) {
      return toPayload(error);
    }
  });
  return { results, planned: executor.plan.transitions, memory: executor.memoryReport(), explained: explain(executor.header, executor.env) };
};

/** Loads code for two providers, one of which fails: whether that was told, and how many memories came back. */
globalThis.loadBroken = async ({ blob, gpu }) => {
  const { giveBack } = Memory.prototype;
  let returned = 0;
  Memory.prototype.giveBack = function () {
    returned++;
    giveBack.call(this);
  };
  const header = { modules: { wasm: [0, blob.length], ...(gpu && { webgpu: [0, 0] }) }, blocks: [] };
  const failed = await loadProgram({ header, blob: new Uint8Array(blob) }, { shared: false, gpu: gpu ? Object.create(Gpu.prototype) : null }).then(() => false, () => true);
  Memory.prototype.giveBack = giveBack;
  return [failed, returned];
};

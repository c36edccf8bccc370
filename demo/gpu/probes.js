// What the GPU can do, measured by the shaders of kit/gpu_probes.py. bench/gpu_probes.py is the twin.

/** @typedef {{ sources: string[], workgroups: number, flops?: number, bytes?: number }} Probe */
/** @typedef {{ bandwidth: number, float32: number, float16?: number }} Peaks operations and bytes a second */

const LONG = 20; // milliseconds of a measurement, at least
const RUNS = 5; // the fastest counts: other work makes a machine slower, never faster
const MOST = 2 ** 14; // iterations of a loop
const COPIED = 64 * 2 ** 20; // bytes of a buffer
const { GPUBufferUsage: Usage, GPUMapMode: Mode } = /** @type {any} */ (globalThis); // undefined without WebGPU

/**
 * Operations and bytes a second. @param {GPUAdapter} adapter @param {Record<'copy' | 'float32' | 'float16', Probe>} probes
 * @returns {Promise<Peaks>}
 */
export async function measurePeaks(adapter, probes) {
  const wanted = /** @type {GPUFeatureName[]} */ (['timestamp-query', 'shader-f16'].filter((name) => adapter.features.has(/** @type {any} */ (name))));
  const device = await adapter.requestDevice({ requiredFeatures: wanted });
  try {
    const usage = Usage.STORAGE | Usage.COPY_DST;
    const [input, output] = [0, 1].map(() => device.createBuffer({ size: COPIED, usage }));
    const bench = { device, input, output };
    const half = wanted.includes('shader-f16') ? { float16: await peak(bench, probes.float16) } : {};
    return { float32: await peak(bench, probes.float32), ...half, bandwidth: await bandwidth(bench, probes.copy) };
  } finally {
    device.destroy();
  }
}

/** @typedef {{ device: GPUDevice, input: GPUBuffer, output: GPUBuffer }} Bench */

/** Operations a second, of the fastest form. @param {Bench} bench @param {Probe} probe */
async function peak(bench, probe) {
  const rates = [];
  for (const source of probe.sources) rates.push(await rate(bench, source, probe));
  return Math.max(...rates);
}

/** @param {Bench} bench @param {string} source @param {Probe} probe */
async function rate(bench, source, { workgroups, flops = 0 }) {
  const run = await prepare(bench, source, workgroups);
  for (let iterations = 8; ; iterations *= 2) {
    bench.device.queue.writeBuffer(bench.input, 0, Float32Array.of(0.999, 0.001, iterations, 0));
    if (await run(1) >= LONG || iterations >= MOST) return flops * iterations / await fastest(() => run(1)) * 1000;
  }
}

/** Bytes a second, read and written. @param {Bench} bench @param {Probe} probe */
async function bandwidth(bench, { sources, workgroups, bytes = 0 }) {
  const run = await prepare(bench, sources[0], workgroups);
  let repeat = 1;
  while (await run(repeat) < LONG && repeat < MOST) repeat *= 2;
  return 2 * bytes * repeat / await fastest(() => run(repeat)) * 1000;
}

/** @param {() => Promise<number>} run */
async function fastest(run) {
  let best = Infinity;
  for (let n = 0; n < RUNS; n++) best = Math.min(best, await run());
  return best;
}

/** A function that runs a shader some times, and gives the milliseconds. @param {Bench} bench @param {string} code @param {number} workgroups */
async function prepare({ device, input, output }, code, workgroups) {
  const module = device.createShaderModule({ code });
  const pipeline = await device.createComputePipelineAsync({ layout: 'auto', compute: { module, entryPoint: 'main' } });
  const entries = [input, output].map((buffer, binding) => ({ binding, resource: { buffer } }));
  const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
  return async (/** @type {number} */ repeat) => {
    const clock = device.features.has('timestamp-query') ? new Clock(device) : null;
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass(clock?.pass);
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let n = 0; n < repeat; n++) pass.dispatchWorkgroups(workgroups);
    pass.end();
    clock?.resolve(encoder);
    await device.queue.onSubmittedWorkDone();
    const start = performance.now();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    const took = performance.now() - start;
    return clock ? clock.read() : took;
  };
}

/** The GPU's clock around one pass. */
class Clock {
  /** @param {GPUDevice} device */
  constructor(device) {
    this.queries = device.createQuerySet({ type: 'timestamp', count: 2 });
    this.resolved = device.createBuffer({ size: 16, usage: Usage.QUERY_RESOLVE | Usage.COPY_SRC });
    this.mapped = device.createBuffer({ size: 16, usage: Usage.COPY_DST | Usage.MAP_READ });
    this.pass = { timestampWrites: { querySet: this.queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } };
  }

  /** @param {GPUCommandEncoder} encoder */
  resolve(encoder) {
    encoder.resolveQuerySet(this.queries, 0, 2, this.resolved, 0);
    encoder.copyBufferToBuffer(this.resolved, 0, this.mapped, 0, 16);
  }

  /** Milliseconds. */
  async read() {
    await this.mapped.mapAsync(Mode.READ);
    const [first, last] = new BigUint64Array(this.mapped.getMappedRange());
    for (const each of [this.queries, this.resolved, this.mapped]) each.destroy();
    return Math.max(Number(last - first) / 1e6, 1e-3);
  }
}

// Times shaders of bench/adapter_speed.py on the adapter of the page.

const STORAGE = 128; // https://www.w3.org/TR/webgpu/#buffer-usage

/**
 * @param {{ bytes: number, groups: number, lanes: number, tries: number, shaders: Record<string, string> }} what
 * @returns {Promise<Record<string, number>>} milliseconds of the fastest dispatch, by shader
 */
export async function adapterTimes({ bytes, groups, lanes, tries, shaders }) {
  const adapter = await /** @type {any} */ (navigator).gpu.requestAdapter();
  const device = await adapter.requestDevice();
  const given = device.createBuffer({ size: bytes, usage: STORAGE, mappedAtCreation: true });
  new Float32Array(given.getMappedRange()).fill(1);
  given.unmap();
  const buffers = [given, device.createBuffer({ size: 4 * groups * lanes, usage: STORAGE })];
  /** @type {Record<string, number>} */
  const times = {};
  for (const [name, code] of Object.entries(shaders)) {
    const pipeline = await device.createComputePipelineAsync({ layout: 'auto', compute: { module: device.createShaderModule({ code }), entryPoint: 'main' } });
    const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    times[name] = Infinity;
    for (let n = 0; n < tries; n++) times[name] = Math.min(times[name], await timed(device, pipeline, group, groups));
  }
  device.destroy();
  return times;
}

/** @param {any} device @param {any} pipeline @param {any} group @param {number} groups */
async function timed(device, pipeline, group, groups) {
  const begin = performance.now();
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  pass.dispatchWorkgroups(groups);
  pass.end();
  device.queue.submit([encoder.finish()]);
  await device.queue.onSubmittedWorkDone();
  return performance.now() - begin;
}

// env.webgpu.profiling: each kernel on the GPU is told of, in the words of onnxruntime-web.

import { env } from 'onnxruntime-common';
import { operatorOf } from './trace.js';

/** @typedef {import('../../common/protocol.js').KernelTiming} KernelTiming */

/** Programs set its fields without asking whether it is there. */
env.webgpu.profiling ??= {};

/** Whether runs on the GPU are to be timed. */
export const isProfiling = () => (env.webgpu.profiling?.mode ?? env.webgpu.profilingMode) === 'default';

/** Times are in nanoseconds. @param {readonly KernelTiming[]} kernels of a run */
export function report(kernels) {
  const { ondata } = env.webgpu.profiling ?? {};
  let end = 0;
  kernels.forEach(({ node, kernel, place, milliseconds, start = end, bytes }, kernelId) => {
    if (place !== 'webgpu') return;
    end = start + milliseconds;
    const [startTime, endTime] = [start, end].map((time) => Math.round(1e6 * time));
    const size = [{ dims: [bytes], dataType: 'uint8' }];
    const data = { version: /** @type {1} */ (1), inputsMetadata: size, outputsMetadata: [], kernelId, kernelType: operatorOf(node), kernelName: node, programName: kernel, startTime, endTime };
    if (ondata) ondata(data);
    else console.log(`pyruntime: ${node} kernel ${kernel}: ${endTime - startTime} ns`);
  });
}

// env.webgpu.profiling: reports each kernel on the GPU, in onnxruntime-web's format.

import { env } from 'onnxruntime-common';

/** @import { KernelTiming } from '../../common/protocol.js' */

/** Pages set its fields without checking that it exists. */
env.webgpu.profiling ??= {};

/** The operator in a node's label: `If "a" (opset 17) > Add "b" (opset 17)`. @param {string} label */
export const operatorOf = (label) => /** @type {string} */ (label.split(/" \(opset \d+\) > /).pop()).split(' ')[0];

/** Whether runs on the GPU are timed. */
export const isProfiling = () => (env.webgpu.profiling?.mode ?? env.webgpu.profilingMode) === 'default';

/** Times are in nanoseconds. @param {readonly KernelTiming[]} kernels of a run */
export function reportKernels(kernels) {
  const { ondata } = env.webgpu.profiling ?? {};
  let end = 0;
  kernels.forEach(({ node, kernel, place, milliseconds, start = end, bytes }, kernelId) => {
    if (place !== 'webgpu') return;
    end = start + milliseconds;
    const [startTime, endTime] = [start, end].map((time) => Math.round(1e6 * time));
    const size = [{ dims: [bytes], dataType: 'uint8' }];
    const metadata = { version: /** @type {1} */ (1), inputsMetadata: size, outputsMetadata: [] };
    const names = { kernelId, kernelType: operatorOf(node), kernelName: node, programName: kernel };
    if (ondata) ondata({ ...metadata, ...names, startTime, endTime });
    else console.log(`pyruntime: ${node} kernel ${kernel}: ${endTime - startTime} ns`);
  });
}

// Runs a model on both providers and finds the first kernel whose results differ.

import { Executor } from '../run/executor.js';
import { InvalidInput } from '../common/errors.js';
import { numbers } from '../common/elements.js';

/** @import { Header } from '../common/program.js' */
/** @import { WireTensor } from '../common/protocol.js' */
/** @import { Model } from './model.js' */
/**
 * @typedef {object} Difference of the first wrong kernel
 * @property {string} node
 * @property {string} kernel
 * @property {number} index of the element that differs most
 * @property {number} expected its value on WebAssembly
 * @property {number} actual its value on the GPU
 * @property {number} error as a share of the tensor's largest value
 */

/**
 * Compares results in the order of the kernels, so that the first difference is the fault and not its consequence.
 * @param {Model} model @param {Record<string, import('../common/protocol.js').WireValue>} feeds @param {number} tolerance
 */
export async function verify(model, feeds, tolerance) {
  const { gpu } = model.host;
  if (!gpu) throw new InvalidInput('this session runs on WebAssembly alone', { hint: "create it with executionProviders: ['webgpu']" });
  const { feeds: onCpu, described } = await model.compileFor(feeds);
  const [gpuProgram, cpuProgram] = await model.compiler.allResults(described);
  const names = gpuProgram.header.outputs.map(({ name }) => name);
  let [actual, expected] = [/** @type {Record<string, any>} */ ({}), /** @type {Record<string, any>} */ ({})];
  try {
    actual = await results(model, gpuProgram, onCpu, names, gpu);
    expected = await results(model, cpuProgram, onCpu, names, null);
  } finally {
    for (const { python } of [gpuProgram, cpuProgram]) python?.destroy();
  }
  const found = names.map((name) => difference(name, actual[name], expected[name], tolerance)).find(Boolean);
  const first = found ? { ...found, kernel: kernelsOf(gpuProgram.header, found.node) } : null;
  return { ok: !first, tolerance, compared: names.length, first };
}

/**
 * @param {Model} model @param {import('../common/program.js').ProgramData} program
 * @param {Record<string, import('../common/protocol.js').WireValue>} feeds @param {string[]} names
 * @param {import('../gpu/device.js').Gpu | null} gpu
 */
async function results(model, program, feeds, names, gpu) {
  const executor = await Executor.create(program, await model.weights(program), model.compiler, { ...model.host, threads: 1, gpu });
  try {
    return await executor.run(feeds, Object.fromEntries(names.map((name) => [name, null])));
  } finally {
    executor.release();
  }
}

/** The kernels of a node on the GPU. @param {Header} header @param {string} label */
function kernelsOf({ blocks }, label) {
  const calls = blocks.flatMap(({ steps }) => steps.flatMap((step) => (step.op === 'gpu' ? step.calls : [])));
  return [...new Set(calls.filter(({ node }) => node === label).map(({ kernel }) => kernel))].join(', ');
}

/**
 * @param {string} name @param {any} actual @param {any} expected @param {number} tolerance
 * @returns {Omit<Difference, 'kernel'> | null}
 */
function difference(name, actual, expected, tolerance) {
  const node = name.slice(name.indexOf(' ') + 1); // after the numbers of the kernel and of its result
  const left = values(actual);
  const right = values(expected);
  if (left.length !== right.length) return { node, index: 0, expected: right.length, actual: left.length, error: Infinity };
  const scale = right.reduce((most, x) => (Math.abs(x) < Infinity ? Math.max(most, Math.abs(x)) : most), 0) || 1;
  const allowed = /float/.test(expected.type) ? tolerance * scale : /int8/.test(expected.type) ? 1 : 0;
  let [index, most] = [-1, allowed];
  for (let i = 0; i < right.length; i++) {
    if (left[i] === right[i] || (Number.isNaN(left[i]) && Number.isNaN(right[i]))) continue;
    const off = Math.abs(left[i] - right[i]);
    if (off <= most) continue;
    [index, most] = [i, Number.isNaN(off) ? Infinity : off];
  }
  return index < 0 ? null : { node, index, expected: right[index], actual: left[index], error: most / scale };
}

/** @param {WireTensor} tensor @returns {number[]} */
function values({ type, data }) {
  const view = /** @type {import('../common/protocol.js').NumericData} */ (data);
  if (type !== 'bfloat16') return numbers(new Uint8Array(view.buffer, view.byteOffset, view.byteLength), type);
  const wide = Uint32Array.from(Array.from(/** @type {Uint16Array} */ (view), (x) => x << 16));
  return Array.from(new Float32Array(wide.buffer));
}

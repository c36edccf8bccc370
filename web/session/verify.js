// Runs a model on both providers and finds the first kernel whose results differ, or finds values that half floats cannot hold.
// Twin of pyruntime/native/execution/verify.py.

import { Executor } from '../run/executor.js';
import { InvalidInput } from '../common/errors.js';
import { numbers } from '../common/elements.js';
import { firstBeyond } from '../runtime/ranges.js';

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

/** ranges: whether to check the range of half floats instead. @typedef {{ tolerance: number, ranges: boolean }} How */

/**
 * @param {Model} model @param {Record<string, import('../common/protocol.js').WireValue>} feeds @param {How} how
 * @returns {Promise<Record<string, unknown>>}
 */
export function verify(model, feeds, { tolerance, ranges }) {
  return ranges ? checkRanges(model, feeds) : compare(model, feeds, tolerance);
}

/**
 * Compares results in the order of the kernels, so that the first difference is the fault and not its consequence.
 * @param {Model} model @param {Record<string, import('../common/protocol.js').WireValue>} feeds @param {number} tolerance
 */
async function compare(model, feeds, tolerance) {
  const { gpu } = model.host;
  if (!gpu) throw new InvalidInput('this session runs on WebAssembly alone', { hint: "create it with executionProviders: ['webgpu']" });
  const { feeds: onCpu, described } = await model.compileFor(feeds);
  const [gpuProgram, cpuProgram] = await model.compiler.allResults(described);
  const names = gpuProgram.header.outputs.map(({ name }) => name);
  /** @type {Record<string, WireTensor>[]} */
  let [actual, expected] = [{}, {}];
  try {
    actual = await results(model, gpuProgram, onCpu, names, gpu);
    expected = await results(model, cpuProgram, onCpu, names, null);
  } finally {
    for (const { python } of [gpuProgram, cpuProgram]) python?.destroy();
  }
  const first = (/** @type {typeof difference} */ find) => {
    const found = names.map((name) => find(name, actual[name], expected[name], tolerance)).find(Boolean);
    return found ? { ...found, kernel: kernelsOf(gpuProgram.header, found.node) } : null;
  };
  const found = first(difference);
  return { ok: !found, tolerance, compared: names.length, first: found, nonFinite: found && first(nonFinite) };
}

/**
 * Runs a half-float model in float32 (pyruntime/compiler/half_ranges.py).
 * @param {Model} model @param {Record<string, import('../common/protocol.js').WireValue>} feeds
 */
async function checkRanges(model, feeds) {
  const { feeds: onCpu, described } = await model.compileFor(feeds);
  const program = await model.compiler.halfRanges?.(described);
  if (!program) throw new InvalidInput('a compiled Program holds no model to check', { hint: 'open the model' });
  const names = program.header.outputs.map(({ name }) => name);
  try {
    const found = await results(model, program, onCpu, names, null);
    const measured = names.map((name) => Number(/** @type {import('../common/protocol.js').NumericData} */ (found[name].data)[0]));
    return verdict(/** @type {any} */ (program.header).ranges, measured);
  } finally {
    program.python?.destroy();
  }
}

/** @param {{ node: string, output: string, inputs: number[] }[]} entries @param {number[]} measured see `firstBeyond` */
function verdict(entries, measured) {
  const n = firstBeyond(entries, measured);
  if (n < 0) return { ok: true, checked: entries.length, first: null };
  const { node, output } = entries[n];
  return { ok: false, checked: entries.length, first: { node, output, magnitude: measured[2 * n + 1] > 0 ? Infinity : measured[2 * n] } };
}

/**
 * @param {Model} model @param {import('../common/program.js').ProgramData} program
 * @param {Record<string, import('../common/protocol.js').WireValue>} feeds @param {string[]} names
 * @param {import('../gpu/device.js').Gpu | null} gpu
 */
async function results(model, program, feeds, names, gpu) {
  const executor = await Executor.create(program, await model.weights(program), model.compiler, { ...model.host, threads: 1, gpu });
  try {
    const found = await executor.run(feeds, Object.fromEntries(names.map((name) => [name, null])));
    return /** @type {Record<string, WireTensor>} */ (found); // results of kernels are no sequences
  } finally {
    executor.release();
  }
}

/** The kernels of a node on the GPU. @param {Header} header @param {string} label */
function kernelsOf({ blocks }, label) {
  const calls = blocks.flatMap(({ steps }) => steps.flatMap((step) => (step.op === 'gpu' ? step.calls : [])));
  return [...new Set(calls.filter(({ node }) => node === label).map(({ kernel }) => kernel))].join(', ');
}

/** The node of a result, whose name begins with the numbers of the kernel and of the result. @param {string} name */
const nodeOf = (name) => name.slice(name.indexOf(' ') + 1);

/**
 * The first element that is infinite or NaN on the GPU alone.
 * @param {string} name @param {WireTensor} actual @param {WireTensor} expected @returns {Omit<Difference, 'kernel'> | null}
 */
function nonFinite(name, actual, expected) {
  const left = values(actual);
  const right = values(expected);
  const index = right.findIndex((x, i) => Number.isFinite(x) && i < left.length && !Number.isFinite(left[i]));
  return index < 0 ? null : { node: nodeOf(name), index, expected: right[index], actual: left[index], error: Infinity };
}

/**
 * @param {string} name @param {WireTensor} actual @param {WireTensor} expected @param {number} tolerance
 * @returns {Omit<Difference, 'kernel'> | null}
 */
function difference(name, actual, expected, tolerance) {
  const node = nodeOf(name);
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

// Parts of providers in Python. Python cannot see the memory of a session, so its arrays are copies.

import { ArrayParts } from './array_parts.js';

/** @import { NumericData } from '../common/protocol.js' */
/**
 * Python's arrays of a part (pyruntime/host/arrays.py).
 * @typedef {{ buffer(n: number): { getBuffer(type: 'u8'): { data: Uint8Array, release(): void }, destroy(): void }, run(): void }} CopiedArrays
 */
/** dims, symbols: JSON: dims of the inputs, and the values of symbols. @typedef {(id: number, dims: string, symbols: string) => CopiedArrays} BindInPython */
/** @typedef {{ provider: string, nodes: string[], number: number | null }} Described what Python tells of a part */

/** @param {Record<string, Described>} parts by number of the host step @param {BindInPython} bind */
export const pythonParts = (parts, bind) => new ArrayParts(new Map(Object.entries(parts).map(([id, part]) => (
  [Number(id), { ...part, bind: inPython(Number(id), bind) }]))));

/**
 * @param {number} id of the step @param {BindInPython} bind @param {<T>(action: () => T) => T} [guard] calls Python
 * @returns {import('./array_parts.js').Part['bind']}
 */
export function inPython(id, bind, guard = (action) => action()) {
  return (inputs, outputs, env) => {
    const copies = guard(() => bind(id, JSON.stringify(inputs.map(({ dims }) => dims)), JSON.stringify(Object.fromEntries(env))));
    return () => {
      inputs.forEach((array, n) => exchange(copies, n, (data) => data.set(bytesOf(array))));
      guard(() => copies.run());
      outputs.forEach((array, n) => exchange(copies, inputs.length + n, (data) => bytesOf(array).set(data)));
    };
  };
}

/** @param {NumericData} array */
const bytesOf = ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength);

/** @param {CopiedArrays} copies @param {number} n @param {(data: Uint8Array) => void} copy */
function exchange(copies, n, copy) {
  const proxy = copies.buffer(n);
  const buffer = proxy.getBuffer('u8'); // anew in each run, because growth of Python's memory ends it
  copy(buffer.data);
  buffer.release();
  proxy.destroy();
}

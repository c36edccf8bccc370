// Writes a model's Programs into a file, with its weights. Twin of pyruntime/native/sessions/program_file.py.

import { InvalidInput } from '../../common/errors.js';
import { hostStep, toBytes } from './program_file.js';

/** @import { Header } from '../../common/program.js' */

const ALIGNED = 16; // bytes
const LARGEST = 2 ** 31; // bytes: arrays of some browsers are no larger

/**
 * providers, assume: of `pyruntime export`
 * @param {import('../../session/model.js').Model} model @param {{ providers: readonly string[], assume: readonly string[] }} how
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function exportProgram(model, { providers, assume }) {
  if (!model.compiler.portable) throw new InvalidInput('an exported program is a file already', { hint: 'export the ONNX model itself' });
  const program = await model.compiler.portable(providers, assume);
  try {
    const read = await model.weights(program);
    const weights = new Weights(program.blob.length);
    const header = weights.place(program.header);
    if (weights.size > LARGEST) throw new InvalidInput(`the file would have ${weights.size} bytes`, { hint: 'the command `pyruntime export` writes it' });
    const blob = new Uint8Array(weights.size);
    blob.set(program.blob);
    for (const { at, offset, size, source } of weights.places.values()) blob.set(read(offset, size, source), at);
    return toBytes(header, blob);
  } finally {
    program.python.destroy();
  }
}

/** The places of weights behind a blob, each once. */
class Weights {
  /** @param {number} size of the blob */
  constructor(size) {
    this.size = size;
    /** @type {Map<string, { at: number, offset: number, size: number, source: string }>} */
    this.places = new Map();
  }

  /** A Program, and those that it falls back to, with their weights in the blob. @param {Header} header @returns {Header} */
  place(header) {
    const host = hostStep(header);
    if (host) throw new InvalidInput('this step runs in Python, which a file cannot hold', { node: host.node, hint: 'open the ONNX model itself' });
    const constants = header.constants.map((constant) => {
      if (!('source' in constant)) return constant;
      const { source, offset, size, ...rest } = constant;
      return { ...rest, blob: [this.at(source, offset, size), size] };
    });
    const { fallback } = /** @type {{ fallback?: Header }} */ (header);
    return /** @type {Header} */ ({ ...header, constants, ...fallback && { fallback: this.place(fallback) } });
  }

  /** @param {string} source @param {number} offset @param {number} size */
  at(source, offset, size) {
    const key = `${source}:${offset}:${size}`;
    const known = this.places.get(key);
    if (known) return known.at;
    const at = Math.ceil(this.size / ALIGNED) * ALIGNED;
    this.places.set(key, { at, offset, size, source });
    this.size = at + size;
    return at;
  }
}

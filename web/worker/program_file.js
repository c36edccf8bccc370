// A Program as a file (pyruntime/native/program_file.py): runs without Python and without being compiled.

import { InvalidInput, InvalidModel, UnsupportedOp } from '../common/errors.js';

/** @typedef {import('../common/program.js').ProgramData} ProgramData */
/** @typedef {import('../common/program.js').Header} Header */
/** @typedef {import('./model.js').Compiler} Compiler */
/** @typedef {{ file: string, size: number, crc32: number }} ModelFile that the weights are in */
/**
 * @typedef {object} Extra what the header of a file says besides
 * @property {{ inputs: any[], outputs: any[] }} types
 * @property {ModelFile} [model]
 * @property {number} [threads]
 */

const MAGIC = 0x74727970; // "pyrt"
const FORMAT = 2;

/** @param {Uint8Array} bytes */
export const isProgram = (bytes) => bytes.length >= 4 && word(bytes, 0) === MAGIC;

/** Whether it is one, as far as one can tell without fetching it. @param {import('../common/protocol.js').Origin} model */
export const looksLikeProgram = (model) => ('url' in model ? /\.pyrt(?:[?#]|$)/.test(model.url) : 'bytes' in model && isProgram(model.bytes));

/** @param {Uint8Array} bytes @param {number} at */
const word = (bytes, at) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(at, true);

/** @param {Uint8Array} bytes @returns {{ header: Header & Extra, blob: Uint8Array }} */
export function parse(bytes) {
  const size = bytes.length < 8 ? Infinity : word(bytes, 4);
  if (8 + size > bytes.length) throw new InvalidModel('the program is cut off');
  /** @type {Header & Extra} */
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(bytes.slice(8, 8 + size)));
  } catch (cause) {
    throw new InvalidModel(`the header of the program is damaged: ${/** @type {Error} */ (cause).message}`, { cause });
  }
  if (header.format !== FORMAT) throw new InvalidModel(`program format ${header.format}, expected ${FORMAT}`, { hint: 'export it again' });
  if (!header.types) throw new InvalidModel('this program does not say its types', { hint: 'write it with session.export()' });
  const ends = [...Object.values(header.modules), ...header.constants.flatMap(({ blob }) => (blob ? [blob] : []))];
  if (ends.some(([at, length]) => 8 + size + at + length > bytes.length)) throw new InvalidModel('the program is cut off');
  return { header, blob: bytes.subarray(8 + size) };
}

/** The file of a Program. @param {Header & Extra} header @param {Uint8Array} blob @returns {Uint8Array<ArrayBuffer>} */
export function toBytes(header, blob) {
  const head = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(8 + head.length + blob.length);
  new Uint32Array(bytes.buffer, 0, 2).set([MAGIC, head.length]);
  bytes.set(head, 8);
  bytes.set(blob, 8 + head.length);
  return bytes;
}

/** A step that runs in Python, if there is one. @param {Header} header */
export const hostStep = ({ blocks }) => blocks.flatMap(({ steps }) => steps).find((step) => step.op === 'host');

/** Refuses what only Python, or another machine, can run. @param {Header} header */
function refuse(header) {
  if (header.modules.webgpu) throw new UnsupportedOp('this program was compiled for the GPU of one machine', { hint: 'export it for the provider "wasm"' });
  const host = hostStep(header);
  if (host) throw new UnsupportedOp('this step runs in Python', { node: host.node, hint: 'open the ONNX model itself' });
}

/**
 * An exported Program in the place of Python and its model (python.js): it is its only Program.
 * @implements {Compiler}
 */
export class Exported {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    const { header, blob } = parse(bytes);
    refuse(header);
    this.header = header;
    this.blob = blob;
    /** What model.js asks of Python's model, and no more. */
    this.proxy = /** @type {import('./python.js').ModelProxy} */ ({ info: JSON.stringify(header.types), timings: '{}', needs: '{"values":[],"dims":[],"defaults":[]}', destroy() {} });
  }

  /** How many threads its scratch is for, at most; memory is shared above 1. */
  get threads() {
    return this.header.threads ?? 1;
  }

  /** The files its weights are in, by the name that they have in the Program. @returns {Map<string, string>} */
  get files() {
    const { model, constants } = this.header;
    const files = new Map(model ? [['', model.file]] : []);
    for (const { source } of constants) if (source) files.set(source, source);
    return files;
  }

  /** That the model is the one it was made of. @param {Uint8Array} bytes */
  check(bytes) {
    const { model } = this.header;
    if (!model || (bytes.length === model.size && crc32(bytes) === model.crc32)) return;
    throw new InvalidModel(`"${model.file}" is not the model that this program was made of`, { hint: 'export it again' });
  }

  /** @returns {ProgramData} */
  main() {
    return { header: this.header, blob: this.blob, python: { timings: '{}', destroy() {} } };
  }

  /** What takes Python. @returns {never} */
  watched() {
    throw new InvalidInput('an exported program cannot be compiled in another way', { hint: 'verify the ONNX model itself' });
  }
  specialise = this.watched;
  fallBack = this.watched;
  host = this.watched;
}

/** As zlib's. @param {Uint8Array} bytes */
function crc32(bytes) {
  const table = new Int32Array(256).map((_, n) => {
    for (let bit = 0; bit < 8; bit++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1;
    return n;
  });
  let crc = -1;
  for (let i = 0; i < bytes.length; i++) crc = table[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

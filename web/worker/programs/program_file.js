// A Program as a file (pyruntime/native/sessions/program_file.py): it runs without Python and without compilation.

import { InvalidInput, InvalidModel, NoAdapter, UnsupportedOp } from '../../common/errors.js';
import { elementSize } from '../../common/elements.js';
import { MAGIC } from '../../common/program_mark.js';
import { crc32 } from '../../common/crc32.js';
import { PIECE } from '../files/model_file.js';
import { chooseHalf, fallbackOf } from '../../runtime/halves.js';
import { Schema } from '../../runtime/schema.js';
import { validate } from '../../runtime/validate.js';
import { SCHEMA } from './program_schema.js';

/** @import { Header, ProgramData } from '../../common/program.js' */
/** @import { Compiler } from '../../session/compiler.js' */

const FORMAT = 5;
const HEAD = 16; // bytes: magic, format, CRC-32 of the bytes after this head, size of the header

const schema = new Schema(SCHEMA, JSON.stringify);

/** Bytes of an element in linear memory; 0 for strings, which are not in it. @param {string} dtype */
const storedSize = (dtype) => (dtype === 'string' ? 0 : elementSize(dtype));

/** @param {Uint8Array} bytes @param {number} at */
const word = (bytes, at) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(at, true);

/** @param {Uint8Array} bytes @returns {{ header: Header, blob: Uint8Array }} */
export function parse(bytes) {
  if (bytes.length < HEAD) throw new InvalidModel('the program is cut off');
  const [format, checksum, size] = [4, 8, 12].map((at) => word(bytes, at));
  const hint = 'export it again';
  if (format !== FORMAT) throw new InvalidModel(`the program has format ${format}, this version reads ${FORMAT}`, { hint });
  if (crc32(bytes.subarray(HEAD)) !== checksum) {
    throw new InvalidModel('the program is damaged or cut off: its checksum does not match', { hint });
  }
  const [header, blob] = [headerOf(bytes.slice(HEAD, HEAD + size)), bytes.subarray(HEAD + size)];
  validate(header, blob.length, schema, storedSize);
  return { header, blob };
}

/** @param {Uint8Array} text @returns {Header} not validated */
function headerOf(text) {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(text));
  } catch (cause) {
    throw new InvalidModel(`the program is damaged: its header is not JSON (${/** @type {Error} */ (cause).message})`, { cause });
  }
}

/** The file of a Program. @param {Header} header @param {Uint8Array} blob @returns {Uint8Array<ArrayBuffer>} */
export function toBytes(header, blob) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(HEAD + text.length + blob.length);
  bytes.set(text, HEAD);
  bytes.set(blob, HEAD + text.length);
  new Uint32Array(bytes.buffer, 0, 4).set([MAGIC, FORMAT, crc32(bytes.subarray(HEAD)), text.length]);
  return bytes;
}

/** @param {import('../files/model_file.js').ModelFile} file */
function checksum(file) {
  let crc = 0;
  for (let at = 0; at < file.size; at += PIECE) crc = crc32(file.read(at, Math.min(PIECE, file.size - at)), crc);
  return crc;
}

/** A step that runs in Python, if the Program has one. @param {Header} header */
export const hostStep = ({ blocks }) => blocks.flatMap(({ steps }) => steps).find((step) => step.op === 'host');

/** Refuses Programs that need Python or the GPU of another machine. @param {Header} header */
function refuse(header) {
  if (header.modules.webgpu && !header.needs) {
    throw new UnsupportedOp('this program was compiled for the GPU of one machine', { hint: 'export it again' });
  }
  const host = hostStep(header);
  if (host) throw new UnsupportedOp('this step runs in Python', { node: host.node, hint: 'open the ONNX model itself' });
}

/**
 * The Programs of a file, of which one runs: the only one of its model.
 * @implements {Compiler}
 */
export class ExportedProgram {
  needs = '{"values":[],"dims":[],"defaults":[]}';
  timings = '{}';
  canCompile = false;

  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    const { header, blob } = parse(bytes);
    const { types } = header;
    if (!types) throw new InvalidModel('this program does not list its inputs and outputs', { hint: 'write it with session.export()' });
    this.first = header;
    /** The Programs, in order of preference. */
    this.headers = [header];
    for (let next = fallbackOf(header); next; next = fallbackOf(next)) this.headers.push(next);
    this.headers.forEach(refuse);
    /** Of the Program that runs. */
    this.header = header;
    this.blob = blob;
    this.info = JSON.stringify(types);
  }

  /** Whether a Program of the file runs without a GPU, and another one with it. */
  get hasFallback() {
    return this.headers.length > 1 && !this.headers[this.headers.length - 1].needs;
  }

  /**
   * Chooses the Program to run, and returns why it is not the first one, or "".
   * @param {import('../../runtime/halves.js').Adapter | null} adapter the GPU to use @param {string} whyNot why there is none
   * @param {boolean} mayLeaveGpu
   */
  choose(adapter, whyNot, mayLeaveGpu) {
    const { header, why } = chooseHalf(this.first, adapter, whyNot, mayLeaveGpu);
    if (!header) throw new NoAdapter(why, { hint: "executionProviders: ['webgpu', 'wasm'] runs the Program without a GPU, if the file has one" });
    this.header = header;
    return why;
  }

  /** The same file for another session, which may choose another Program. @returns {ExportedProgram} */
  again() {
    return Object.assign(Object.create(ExportedProgram.prototype), this);
  }

  /** The number of threads that it has scratch memory for; above 1 its memory is shared. */
  get threads() {
    return this.header.threads ?? 1;
  }

  /** The files with its weights, by name in the Program. @returns {Map<string, string>} */
  get files() {
    const { model } = this.first;
    const files = new Map(model ? [['', model.file]] : []);
    for (const constant of this.headers.flatMap(({ constants }) => constants)) if ('source' in constant && constant.source) files.set(constant.source, constant.source);
    return files;
  }

  /**
   * Checks that a file is the one from which the Program was exported.
   * @param {string} name in the Program @param {import('../files/model_file.js').ModelFile} file
   */
  check(name, file) {
    const { model, files } = this.first;
    const exported = name ? files?.find((known) => known.file === name) : model;
    if (!exported || file.size === exported.size && checksum(file) === exported.crc32) return;
    throw new InvalidModel(`"${exported.file}" is not the file that this program needs`, { hint: 'export it again' });
  }

  get shared() {
    return this.threads > 1;
  }

  /** @returns {ProgramData} */
  main() {
    return { header: this.header, blob: this.blob, python: { timings: '{}', destroy() {} } };
  }

  destroy() {}

  /** Throws: compiling needs Python. @returns {never} */
  allResults() {
    throw new InvalidInput('an exported program cannot be compiled again', { hint: 'verify the ONNX model itself' });
  }
  /** @returns {never} */
  specialise() {
    throw new InvalidInput('this program needs all its inputs for these outputs', { hint: 'open the ONNX model itself' });
  }
  host = this.allResults;

  /** @param {Record<string, string>} nodes with the reasons why the GPU does not run them */
  leaveGpu(nodes) {
    this.choose(null, Object.values(nodes)[0] ?? 'the GPU is lost', true);
  }
}

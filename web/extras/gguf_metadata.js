// The metadata of a GGUF file: pairs of keys and values at its beginning.
// Twin of pyruntime/onnx/gguf_reader.py.

import { InvalidModel } from '../common/errors.js';

const [STRING, ARRAY] = [8, 9];
const MOST_DEPTH = 4;

/** Readers of numbers, by the code of a value's type, with their sizes in bytes. @type {Record<number, [number, (view: DataView, at: number) => number | boolean]>} */
const NUMBERS = {
  0: [1, (view, at) => view.getUint8(at)], 1: [1, (view, at) => view.getInt8(at)],
  2: [2, (view, at) => view.getUint16(at, true)], 3: [2, (view, at) => view.getInt16(at, true)],
  4: [4, (view, at) => view.getUint32(at, true)], 5: [4, (view, at) => view.getInt32(at, true)],
  6: [4, (view, at) => view.getFloat32(at, true)], 7: [1, (view, at) => view.getUint8(at) !== 0],
  10: [8, (view, at) => Number(view.getBigUint64(at, true))], 11: [8, (view, at) => Number(view.getBigInt64(at, true))],
  12: [8, (view, at) => view.getFloat64(at, true)],
};

/** @param {string} what */
const damaged = (what) => new InvalidModel(`this GGUF file is damaged: ${what}`, { hint: 'fetch it again' });

/**
 * The metadata; null if they go on after these first bytes of a file. Throws InvalidModel.
 * @param {Uint8Array<ArrayBuffer>} bytes @param {boolean} isWhole whether these are all bytes of the file
 * @returns {Record<string, unknown> | null}
 */
export function readMetadata(bytes, isWhole) {
  try {
    return new Cursor(bytes).metadata();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    if (isWhole) throw damaged('its metadata reach beyond its end');
    return null;
  }
}

/** Reads values one after the other. Throws RangeError at the end of the bytes. */
class Cursor {
  /** @param {Uint8Array<ArrayBuffer>} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.at = 4; // behind GGUF
    this.decoder = new TextDecoder();
  }

  /** @returns {Record<string, unknown>} */
  metadata() {
    const version = this.number(4);
    if (version !== 2 && version !== 3) throw new InvalidModel(`this GGUF file has version ${version}; versions 2 and 3 in little-endian order can be read`);
    this.number(10); // how many tensors follow
    const count = Number(this.number(10));
    /** @type {[string, unknown][]} */
    const pairs = [];
    for (let n = 0; n < count; n++) pairs.push([this.text(), this.value(Number(this.number(4)), 0)]);
    return Object.fromEntries(pairs);
  }

  /** @param {number} kind */
  number(kind) {
    const [size, read] = NUMBERS[kind];
    const found = read(this.view, this.at);
    this.at += size;
    return found;
  }

  text() {
    const size = Number(this.number(10));
    if (size > this.bytes.length - this.at) throw new RangeError();
    this.at += size;
    return this.decoder.decode(this.bytes.subarray(this.at - size, this.at));
  }

  /** @param {number} kind @param {number} depth @returns {unknown} */
  value(kind, depth) {
    if (kind === STRING) return this.text();
    if (kind in NUMBERS) return this.number(kind);
    if (kind !== ARRAY || depth === MOST_DEPTH) throw damaged(`a value before byte ${this.at} has the type ${kind}`);
    const [of, count] = [Number(this.number(4)), Number(this.number(10))];
    const values = [];
    for (let n = 0; n < count; n++) values.push(this.value(of, depth + 1));
    return values;
  }
}

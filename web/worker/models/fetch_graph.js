// Fetches the parts of a model besides its weights, so that Python's reader, which cannot wait, finds them. It stops at errors:
// the reader reports them.
//
// Spec: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto

/** Kinds of inner messages, by number of the field. @typedef {{ [number: number]: Kind }} Kind */
/** @import { PartialFile } from '../files/partial_file.js' */

const TENSOR = {};
const SPARSE = { 1: TENSOR, 2: TENSOR };
/** @type {Kind} */
const GRAPH = { 5: TENSOR, 15: SPARSE };
const NODE = GRAPH[1] = { 5: { 5: TENSOR, 6: GRAPH, 10: TENSOR, 11: GRAPH, 22: SPARSE, 23: SPARSE } };
const MODEL = { 7: GRAPH, 25: { 7: NODE } };

const SMALL = 1 << 14; // bytes: fields up to this size are fetched, whatever they contain
const HEADER = 20; // a tag and a length, each at most 10 bytes
const VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5;

/** @param {PartialFile} file @param {number} [start] @param {number} [end] @param {Kind} [kind] of the message at that place */
export async function fetchGraph(file, start = 0, end = file.size, kind = MODEL) {
  for (let at = start; at < end;) {
    const size = Math.min(HEADER, end - at);
    const { tag, value, length } = header(file.peek(at, size) ?? await file.get(at, size));
    const type = tag % 8;
    at += length;
    if (type === FIXED64 || type === FIXED32) at += type === FIXED64 ? 8 : 4;
    else if (type === LENGTH && at + value <= end) {
      const inner = kind[Math.floor(tag / 8)];
      if (value <= SMALL) file.peek(at, value) ?? await file.get(at, value);
      else if (inner) await fetchGraph(file, at, at + value, inner);
      at += value;
    } else if (type !== VARINT) return;
  }
}

/** The first field of a message: its tag, and its length or value. @param {Uint8Array} bytes */
function header(bytes) {
  let length = 0;
  const varint = () => {
    let value = 0;
    for (let scale = 1; length < bytes.length; scale *= 128) {
      const byte = bytes[length++];
      value += (byte & 127) * scale;
      if (byte < 128) break;
    }
    return value;
  };
  const tag = varint();
  const value = [VARINT, LENGTH].includes(tag % 8) ? varint() : 0;
  return { tag, value, length };
}

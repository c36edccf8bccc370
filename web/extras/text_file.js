// Writes and reads saved texts. pyruntime/runtime/saved_text.py has the rules of their headers.

import { crc32 } from '../common/crc32.js';
import { FORMAT, HEAD, MAGIC, checkHead, damaged, headerOf, place, savedText } from '../runtime/saved_text.js';

/** @param {import('../runtime/saved_text.js').SavedText} saved @param {Uint8Array[]} parts bytes, in the order of the tensors */
export function write(saved, parts) {
  place(saved.decoders);
  const header = new TextEncoder().encode(JSON.stringify(headerOf(saved)));
  const bytes = new Uint8Array(HEAD + header.length + parts.reduce((sum, { length }) => sum + length, 0));
  let at = HEAD;
  for (const part of [header, ...parts]) {
    bytes.set(part, at);
    at += part.length;
  }
  new Uint32Array(bytes.buffer, 0, 4).set([MAGIC, FORMAT, crc32(bytes.subarray(HEAD)), header.length]);
  return bytes.buffer;
}

/** The text, and the bytes of its tensors. Throws InvalidInput. @param {Uint8Array} bytes */
export function read(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const words = bytes.length < HEAD ? [] : [0, 4, 8, 12].map((at) => view.getUint32(at, true));
  checkHead(bytes.length, words);
  const rest = bytes.subarray(HEAD);
  if (crc32(rest) !== words[2]) throw damaged('its checksum does not match');
  const body = rest.subarray(words[3]);
  return { saved: savedText(headerIn(rest.subarray(0, words[3])), body.length), body };
}

/** @param {Uint8Array} bytes @returns {unknown} */
function headerIn(bytes) {
  try {
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    throw damaged('its header is not JSON');
  }
}

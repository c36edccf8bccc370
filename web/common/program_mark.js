// Recognises exported Programs.

export const MAGIC = 0x74727970; // "pyrt"

/** @param {Uint8Array} bytes of a file, from its start */
export const isProgram = (bytes) => bytes.length >= 4 && new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true) === MAGIC;

/**
 * Guesses by the model's name or first bytes, without a download, whether it is an exported Program.
 * @param {import('./protocol.js').Origin} model
 */
export const looksLikeProgram = (model) => (
  'url' in model ? /\.pyrt(?:[?#]|$)/.test(model.url) : 'bytes' in model && isProgram(model.bytes));

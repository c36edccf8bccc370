// Writes a model's Program into a file, with its weights. Twin of `pack` in pyruntime/native/sessions/program_file.py.

import { InvalidInput } from '../../common/errors.js';
import { hostStep, toBytes } from './program_file.js';

const ALIGNED = 16; // bytes
const LARGEST = 2 ** 31; // bytes: arrays of some browsers are no larger

/** @param {import('../../session/model.js').Model} model @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function exportProgram(model) {
  if (!model.compiler.portable) throw new InvalidInput('an exported program is a file already', { hint: 'export the ONNX model itself' });
  const program = await model.compiler.portable();
  try {
    const host = hostStep(program.header);
    if (host) throw new InvalidInput('this step runs in Python, which a file cannot hold', { node: host.node, hint: 'open the ONNX model itself' });
    const read = await model.weights(program);
    let size = program.blob.length;
    const constants = program.header.constants.map((constant) => {
      if (!('source' in constant)) return constant;
      const { source: _source, offset: _offset, size: own, ...rest } = constant;
      const at = Math.ceil(size / ALIGNED) * ALIGNED;
      size = at + own;
      return { ...rest, blob: [at, own] };
    });
    if (size > LARGEST) throw new InvalidInput(`the file would have ${size} bytes`, { hint: 'the command `pyruntime export` writes it' });
    const blob = new Uint8Array(size);
    blob.set(program.blob);
    program.header.constants.forEach((constant, i) => {
      if ('source' in constant) blob.set(read(constant.offset, constant.size, constant.source), /** @type {any} */ (constants[i]).blob[0]);
    });
    return toBytes(/** @type {any} */ ({ ...program.header, constants }), blob);
  } finally {
    program.python.destroy();
  }
}

// The kernels of a model after the passes, their loops and their code, as text (pyruntime/compiler/listing.py).

import { InvalidInput } from '../common/errors.js';

/**
 * forAll: of the Program for all feeds; node: a name, operator or label of nodes, "" for all.
 * @param {import('./model.js').Model} model @param {Record<string, import('../common/protocol.js').WireValue>} feeds
 * @param {{ forAll: boolean, node: string, code: boolean }} what
 */
export async function listing(model, feeds, { forAll, node, code }) {
  if (!model.compiler.listing) throw new InvalidInput('an exported program holds no kernels to list', { hint: 'open the ONNX model itself' });
  return model.compiler.listing(forAll ? null : (await model.compileFor(feeds)).described, node, code);
}

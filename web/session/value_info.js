// What a model declares about its inputs and outputs.

/** @import { About, ValueInfo } from '../common/protocol.js' */
/**
 * @typedef {{ kind: string, dtype?: string | null, dims?: (number | string | null)[] | null, of?: Type,
 *   classes?: (string | number)[] }} Type
 */

/** @param {string} info of a `Compiler` @returns {{ inputs: ValueInfo[], outputs: ValueInfo[], about: About }} */
export function valuesOf(info) {
  const { inputs, outputs, uses = {}, unused = [], metadata = null, ...more } = JSON.parse(info);
  return { inputs: inputs.map(valueInfo), outputs: outputs.map(valueInfo), about: { uses, unused, metadata, ...more } };
}

/** @param {{ name: string, default?: boolean, map?: import('../common/protocol.js').MapInfo } & Type} type @returns {ValueInfo} */
function valueInfo({ name, default: hasDefault, map, ...type }) {
  const optional = type.kind === 'optional';
  const inner = /** @type {Type} */ (optional ? type.of : type);
  const sequence = inner.kind === 'sequence';
  const tensor = /** @type {Type} */ (sequence ? inner.of : inner);
  return { name, dtype: tensor.dtype ?? null, shape: tensor.dims ?? null, optional, sequence, hasDefault, map, classes: type.classes };
}

// Inputs of language models: what ids, masks, token types, positions and caches are for the tokens of one text.

/** @typedef {{ name: string, type: string, shape: readonly (number | string)[] }} Input */
/** @typedef {import('./input_files.js').Loaded} Loaded */
/** ids; types: 1 for tokens of a second text; pad: the token that fills up fixed lengths; tail: special tokens at the end, which cutting keeps.
 * @typedef {{ ids: number[], types?: number[], pad?: number, tail?: number }} Tokens */
/** @typedef {'ids' | 'mask' | 'types' | 'positions' | 'cache' | 'caching' | 'logits'} Role */

/** Names in exports of Hugging Face's tools, onnxruntime-genai and PyTorch. @type {[Role, RegExp][]} */
const NAMES = [
  ['ids', /^(input_ids|ids|(input_|text_)?tokens)$/],
  ['mask', /^(attention_mask|input_mask|mask)$/],
  ['types', /^(token_type_ids|segment_ids)$/],
  ['positions', /^(position_ids|cache_position)$/],
  ['caching', /^use_cache_branch$/],
  ['logits', /^(num_)?logits_to_keep$/],
  ['cache', /^past|cache/],
];

/** @param {readonly Input[]} inputs @returns {{ ids: Input, roles: Map<Input, Role> } | null} null without an input for tokens */
export function tokenInputs(inputs) {
  const names = inputs.some(({ name }) => name === 'input_ids') ? inputs : inputs.map((input) => ({ ...input, name: input.name.replace(/^decoder_(?=input_ids|attention_mask)/, '') }));
  /** @type {Map<Input, Role>} */
  const roles = new Map();
  for (const [n, { name, type, shape }] of names.entries()) {
    const role = NAMES.find(([, pattern]) => pattern.test(name))?.[0];
    const fits = role === 'cache' ? shape.length > 2 : role !== 'ids' || /^int(32|64)$/.test(type) && shape.length > 0 && shape.length <= 2;
    if (role && fits) roles.set(inputs[n], role);
  }
  const ids = [...roles].find(([, role]) => role === 'ids')?.[0];
  return ids ? { ids, roles } : null;
}

/** A size that is fixed. @param {Input} input @param {number} axis from the end @returns {number | null} */
function fixed({ shape }, axis) {
  const dim = shape.at(-axis);
  return typeof dim === 'number' ? dim : null;
}

/**
 * The elements of all inputs that depend on the tokens, and sentences about padding and cutting.
 * @param {{ ids: Input, roles: Map<Input, Role> }} found @param {Tokens} tokens at least one @returns {{ inputs: Map<string, Loaded>, told: string[] }}
 */
export function fill({ ids, roles }, tokens) {
  const asked = tokens.ids.length;
  const length = fixed(ids, 1) ?? asked;
  const count = Math.min(asked, length);
  const tail = Math.min(tokens.tail ?? 0, count);
  const fit = (/** @type {number[]} */ row, /** @type {number} */ filler) => [...row.slice(0, count - tail), ...row.slice(asked - tail), ...new Array(length - count).fill(filler)];
  const cache = [...roles].find(([, role]) => role === 'cache')?.[0];
  const past = (cache && fixed(cache, 2)) ?? 0;
  const mask = [...roles].find(([, role]) => role === 'mask')?.[0];
  const masked = mask && fixed(mask, 1) || past + length;
  const before = masked === past + length ? past : 0; // a cache of fixed length is empty, so nothing of it is attended to
  /** @type {Record<Exclude<Role, 'cache'>, number[]>} */
  const rows = {
    ids: fit(tokens.ids, tokens.pad ?? 0),
    mask: Array.from({ length: masked }, (_, n) => Number(n >= before && n < before + count)),
    types: fit(tokens.types ?? new Array(asked).fill(0), 0),
    positions: Array.from({ length }, (_, n) => n),
    caching: [0],
    logits: [1],
  };
  const inputs = new Map([...roles].map(([input, role]) => [input.name, role === 'cache' ? emptyCache(input) : repeated(input, rows[role])]));
  return { inputs, told: about(asked, length, { pad: tokens.pad ?? 0, isMasked: mask !== undefined }) };
}

/** @param {number} asked @param {number} length @param {{ pad: number, isMasked: boolean }} how @returns {string[]} */
function about(asked, length, { pad, isMasked }) {
  const count = `${asked} ${asked === 1 ? 'token' : 'tokens'}`;
  if (asked > length) return [`${count}, cut to ${length}: this model's input has that length`];
  if (asked === length) return [count];
  const warning = isMasked ? 'which the mask excludes' : 'which this model cannot tell from the text, because it has no mask';
  return [count, `filled up to ${length} with token ${pad}, ${warning}`];
}

/** The row for each index of the axes before it. @param {Input} input @param {number[]} row @returns {Loaded} */
function repeated({ shape }, row) {
  if (!shape.length) return { data: row.slice(0, 1), dims: [] };
  const outer = shape.slice(0, -1).map((dim) => (typeof dim === 'number' ? dim : 1));
  const count = outer.reduce((product, dim) => product * dim, 1);
  return { data: Array.from({ length: count }, () => row).flat(), dims: [...outer, row.length] };
}

/** Keys or values of no token, or zeros where the length is fixed. @param {Input} input @returns {Loaded} */
function emptyCache({ shape }) {
  const dims = shape.map((dim, axis) => (typeof dim === 'number' ? dim : axis ? 0 : 1));
  return { data: new Uint8Array(dims.reduce((product, dim) => product * dim, 1)), dims };
}

// The settings with which texts are written, and what was written.

import { MOST, Numbers, Sampling, refusedNumber } from '../runtime/writing.js';
import { optionsOf } from '../common/records.js';

/** @typedef {import('./decoder.js').Tensor} Tensor */
/** @typedef {import('../runtime/writing.js').Text} Text */
/** @typedef {import('../runtime/writing.js').Format} Format */
/** @typedef {import('./formats/formats.js').Given} Given */
/** @typedef {typeof import('../common/errors.js').InvalidInput} InvalidInput */
/** What was written, as web/extras.d.ts documents it.
 * @typedef {{ tokens: number[], text: string, reason: 'length' | 'token' | 'text' | 'format', reused: number, first: number, milliseconds: number, drafted: number,
 *   accepted: number }} Generated */
/** @typedef {{ maxTokens?: number, seed?: number, stop?: string | readonly string[], inputs?: Record<string, Tensor>, signal?: AbortSignal,
 *   format?: Given } & Partial<Sampling>} Settings */
/** Settings that are complete. @typedef {{ how: Sampling, numbers: Numbers, most: number, stop: string | readonly string[], signal: AbortSignal | undefined,
 *   inputs: Record<string, Tensor> | undefined, format: Given | undefined }} Complete */
/** Texts that one call writes. form: begins what they may be @typedef {{ texts: Text[], form: () => Format | null } & Omit<Complete, 'stop'>} Writing */

/** @param {Settings | null | undefined} settings @param {InvalidInput} InvalidInput the class of errors @returns {Complete} */
export function readSettings(settings, InvalidInput) {
  /** @type {Settings & { maxTokens: number, stop: string | readonly string[] }} */
  const defaults = { maxTokens: 256, stop: [], seed: undefined, signal: undefined, inputs: undefined, format: undefined, ...new Sampling() };
  const { maxTokens, seed, stop, signal, inputs, format, ...sampling } = optionsOf(settings, defaults, 'generate', InvalidInput);
  checkNumber('maxTokens', maxTokens, InvalidInput);
  if (seed !== undefined && !Number.isSafeInteger(seed)) throw new InvalidInput(`seed is ${seed}`, { hint: 'an integer is expected, of at most 53 bits' });
  const numbers = new Numbers(seed ?? Math.floor(Math.random() * 2 ** 31));
  return { how: readSampling(sampling, InvalidInput), numbers, most: maxTokens, stop, signal, inputs, format };
}

/** @param {Record<string, unknown>} given all settings of sampling @param {InvalidInput} InvalidInput @returns {Sampling} */
function readSampling(given, InvalidInput) {
  const how = Object.assign(new Sampling(), given);
  const { earlyStopping, ...numbers } = given;
  for (const [name, value] of Object.entries(numbers)) checkNumber(name, value, InvalidInput);
  if (typeof earlyStopping !== 'boolean') throw new InvalidInput(`earlyStopping is ${earlyStopping}`, { hint: 'true or false' });
  return how;
}

/** @param {string} name @param {unknown} value @param {InvalidInput} InvalidInput */
export function checkNumber(name, value, InvalidInput) {
  const hint = refusedNumber(name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), typeof value === 'number' ? value : NaN);
  if (hint) throw new InvalidInput(`${name} is ${String(value)}`, { hint });
}

/** Tokens that a caller gives. @param {string} name @param {unknown} given @param {InvalidInput} InvalidInput @returns {number[]} */
export function tokenList(name, given, InvalidInput) {
  const isList = typeof given === 'object' && given !== null && Symbol.iterator in given;
  const tokens = isList ? [.../** @type {Iterable<unknown>} */ (given)] : [];
  if (!isList || tokens.some((token) => typeof token !== 'bigint' && !Number.isInteger(token))) {
    throw new InvalidInput(`${name} is ${String(given)}`, { hint: 'a text or a list of tokens is expected' });
  }
  const strange = tokens.map(Number).find((token) => !(token >= 0 && token <= MOST));
  if (strange !== undefined) throw new InvalidInput(`${name} has the token ${strange}`, { hint: `tokens are from 0 to ${MOST}` });
  return tokens.map(Number);
}

/**
 * The inputs of one of several texts: a row of those that have a row for each, and others whole.
 * @param {Record<string, Tensor> | undefined} inputs @param {number} row @param {number} rows @param {import('./parts.js').Parts['Tensor']} Tensor
 */
export function rowOf(inputs, row, rows, Tensor) {
  if (!inputs || rows === 1) return inputs;
  const own = (/** @type {Tensor} */ tensor) => {
    const { type, dims, size } = tensor;
    if (dims[0] !== rows) return tensor;
    return new Tensor(type, tensor.data.slice(row * size / rows, (row + 1) * size / rows), [1, ...dims.slice(1)]);
  };
  return Object.fromEntries(Object.entries(inputs).map(([name, tensor]) => [name, own(tensor)]));
}

/** @param {Text} text @returns {Generated} */
export function generated({ tokens, text, reason, reused, first, elapsed: milliseconds, drafted, accepted }) {
  return { tokens: [...tokens], text, reason: /** @type {Generated['reason']} */ (reason), reused, first, milliseconds, drafted, accepted };
}

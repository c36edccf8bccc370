// Evaluates the dims of a Program: integers, symbols, and expressions (to_json and evaluate of pyruntime/ir/shape.py).
// Twin of pyruntime/program/dims.py.

/** @import { Dim } from '../common/program.js' */
/** @typedef {Map<string, number>} Env values of symbols */

/** @type {Record<string, (a: number, b: number, c: number) => number>} */
const OPERATIONS = {
  floordiv: (a, b) => (b ? Math.floor(a / b) : 0),
  max: (a, b) => Math.max(a, b),
  min: (a, b) => Math.min(a, b),
  lt: (a, b) => Number(a < b),
  le: (a, b) => Number(a <= b),
  eq: (a, b) => Number(a === b),
  select: (c, a, b) => (c ? a : b),
};

/**
 * @param {Dim} dim
 * @param {Env} env
 * @returns {number}
 */
export function evaluate(dim, env) {
  if (typeof dim === 'number') return dim;
  if (typeof dim === 'string') {
    const value = env.get(dim);
    if (value === undefined) throw new Error(`the symbol "${dim}" has no value`);
    return value;
  }
  const [op, a, b = 0, c = 0] = dim;
  if (op !== '+' && op !== '*') return OPERATIONS[op](evaluate(a, env), evaluate(b, env), evaluate(c, env));
  let found = Number(op === '*');
  for (let n = 1; n < dim.length; n++) { // no temporary arrays, because a token of a decoder evaluates thousands of dims
    const value = evaluate(dim[n], env);
    found = op === '+' ? found + value : found * value;
  }
  return found;
}

/** @param {Dim[]} dims @param {Env} env @returns {number[]} */
export const evaluateAll = (dims, env) => dims.map((dim) => evaluate(dim, env));

/** A function that evaluates a dim. @param {Dim} dim @returns {(env: Env) => number} */
export const compileDim = (dim) => (env) => evaluate(dim, env);

/** A function that evaluates dims, each distinct one once. @param {Dim[]} dims @returns {(env: Env) => number[]} */
export function compileDims(dims) {
  const texts = dims.map((dim) => JSON.stringify(dim));
  const numbers = new Map([...new Set(texts)].map((text, n) => [text, n]));
  const distinct = [...numbers.keys()].map((text) => JSON.parse(text));
  if (distinct.length === dims.length) return (env) => evaluateAll(dims, env);
  const places = texts.map((text) => Number(numbers.get(text)));
  return (env) => {
    const values = evaluateAll(distinct, env);
    return places.map((n) => values[n]);
  };
}

/** Names of the symbols in a dim. @param {Dim} dim @param {Set<string>} [into] @returns {Set<string>} */
export function symbols(dim, into = new Set()) {
  if (typeof dim === 'string') into.add(dim);
  else if (Array.isArray(dim)) for (const operand of dim.slice(1)) symbols(/** @type {Dim} */ (operand), into);
  return into;
}

// Reports how each node of a model was compiled: evaluates the table in the Program's header for one run
// (pyruntime/emit/explain_table.py writes it, docs/explain.md describes the result).

import { evaluate } from '../common/dims.js';

/** @typedef {import('../common/dims.js').Env} Env */
/** @typedef {import('../common/program.js').Header} Header */

const EMPTY = { place: '', kernels: [], calls: 0, fused: [], into: '', work: 0, crossing: 0, why: '' };

/** @param {Header} header @param {Env} [env] values of the symbols, for the numbers of work and bytes */
export function explain({ explain: table }, env = new Map()) {
  const nodes = table.nodes.map((row) => {
    const { node, op, ...told } = { ...EMPTY, ...row };
    return { node, op, ...told, work: value(told.work, env), crossing: value(told.crossing, env) };
  });
  return { ...table, nodes };
}

/** The dim's value; null if a symbol has none. @param {import('../common/dims.js').Dim} dim @param {Env} env @returns {number | null} */
function value(dim, env) {
  try {
    return evaluate(dim, env);
  } catch {
    return null;
  }
}

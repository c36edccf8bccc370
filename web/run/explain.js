// What the compiler made of a model, read off the Program's header. Mirrors pyruntime/program/explain.py; docs/explain.md
// describes the result.

import { evaluate as valueOf } from './dims.js';
import { elementSize } from '../common/elements.js';

/** @typedef {import('./dims.js').Dim} Dim */
/** @typedef {import('./dims.js').Env} Env */
/** @typedef {import('../common/program.js').Header} Header */
/** @typedef {import('../common/program.js').TensorValue} TensorValue */
/**
 * @typedef {object} Entry a node
 * @property {string} node
 * @property {string} op
 * @property {string} place
 * @property {string[]} kernels
 * @property {number} calls
 * @property {string[]} fused
 * @property {string} into
 * @property {number | null} work
 * @property {number | null} crossing
 * @property {string} why
 */
/** @typedef {{ node: string, kernel: string, work: Dim, buffers?: number[] }} Call */

/** Of steps; the others are control. @type {Record<string, string>} */
const PLACES = { wasm: 'wasm', gpu: 'webgpu', host: 'host' };

/** @param {Header} header @param {Env} [env] values of the symbols, for the numbers of work and bytes */
export function explain(header, env = new Map()) {
  const steps = header.blocks.flatMap((block, number) => block.steps.map((step) => ({ number, step: /** @type {any} */ (step) })));
  const entries = new Map(labels(header, steps).map((label) => [label, entry(label)]));
  for (const item of header.nodes ?? []) {
    if (typeof item === 'string') continue;
    const [label, fate, into = ''] = item;
    Object.assign(/** @type {Entry} */ (entries.get(label)), { place: fate, into });
    entries.get(into)?.fused.push(label);
  }
  for (const [label, why] of Object.entries(header.why ?? {})) {
    const found = entries.get(label);
    if (found) found.why = why;
  }
  const calls = count(steps, entries, env);
  /** @type {Record<string, number>} */
  const placement = {};
  for (const { place } of calls) placement[place] = (placement[place] ?? 0) + 1;
  return {
    operators: operators(entries),
    placement,
    kernels: calls.length,
    functions: new Set(calls.map(({ kernel }) => kernel).filter(Boolean)).size,
    steps: steps.length,
    code: Object.values(header.modules).reduce((sum, [, size]) => sum + size, 0),
    nodes: [...entries.values()],
  };
}

/** The calls of a step; one of control or host counts as one. @param {any} step @returns {Call[]} */
const callsOf = (step) => step.calls ?? [{ node: step.node ?? '', kernel: '', work: 0 }];

/** Nodes of the graph in order, then those of inner graphs and functions that have steps. @param {Header} header @param {{ step: any }[]} steps */
function labels(header, steps) {
  const graph = (header.nodes ?? []).map((item) => (typeof item === 'string' ? item : item[0]));
  const inner = steps.flatMap(({ step }) => callsOf(step).map(({ node }) => node));
  return [...new Set([...graph, ...inner])].filter(Boolean);
}

/** @param {string} node @returns {Entry} */
function entry(node) {
  const own = node.split(/(?<=" \(opset -?\d+\)) > /).at(-1) ?? node; // names have no quotes, so this is no part of one
  const [op] = own.split(' "');
  return { node, op, place: '', kernels: [], calls: 0, fused: [], into: '', work: 0, crossing: 0, why: '' };
}

/** Fills in what the calls tell. @param {{ number: number, step: any }[]} steps @param {Map<string, Entry>} entries @param {Env} env */
function count(steps, entries, env) {
  /** Buffers that copies fill, until a node reads them. @type {Map<number, number | null>} */
  const crossed = new Map();
  const out = [];
  for (const { number, step } of steps) {
    if (step.op === 'copy') {
      for (const [, into] of step.pairs) crossed.set(into.buffer, bytes(into, env));
      continue;
    }
    const place = PLACES[step.op] ?? 'control';
    for (const call of callsOf(step)) {
      const found = entries.get(call.node);
      if (found) add(found, number ? place : 'init', call, call.buffers ?? [...buffersIn(step)], crossed, env);
      out.push({ place, kernel: call.kernel });
    }
  }
  return out;
}

/**
 * A call of a node. What runs once, in init, is no part of a run's calls and work.
 * @param {Entry} found @param {string} place @param {Call} call @param {number[]} buffers
 * @param {Map<number, number | null>} crossed @param {Env} env
 */
function add(found, place, call, buffers, crossed, env) {
  if (call.kernel && !found.kernels.includes(call.kernel)) found.kernels.push(call.kernel);
  found.place = place;
  if (place === 'init') return;
  found.calls++;
  found.work = sum(found.work, evaluate(call.work, env));
  for (const buffer of new Set(buffers)) {
    if (!crossed.has(buffer)) continue;
    found.crossing = sum(found.crossing, /** @type {number | null} */ (crossed.get(buffer)));
    crossed.delete(buffer);
  }
}

/** The buffers that a step without calls mentions. @param {any} value @returns {Set<number>} */
function buffersIn(value) {
  if (typeof value !== 'object' || value === null) return new Set();
  if ('buffer' in value) return new Set([value.buffer]);
  return new Set(Object.values(value).flatMap((inner) => [...buffersIn(inner)]));
}

/** @param {TensorValue} value @param {Env} env @returns {number | null} */
function bytes({ dims, dtype }, env) {
  const known = dims.map((dim) => evaluate(dim, env));
  return known.reduce((product, d) => (product === null || d === null ? null : product * d), /** @type {number | null} */ (elementSize(dtype)));
}

/** @param {number | null} a @param {number | null} b */
const sum = (a, b) => (a === null || b === null ? null : a + b);

/** Null if a symbol has no value. @param {Dim} dim @param {Env} env @returns {number | null} */
function evaluate(dim, env) {
  try {
    return valueOf(dim, env);
  } catch {
    return null;
  }
}

/** By count, each with the place where most of its nodes run. @param {Map<string, Entry>} entries */
function operators(entries) {
  /** @type {Map<string, Map<string, number>>} */
  const places = new Map();
  for (const { op, place, into } of entries.values()) {
    const counts = places.get(op) ?? new Map();
    places.set(op, counts);
    const where = entries.get(into)?.place ?? place;
    counts.set(where, (counts.get(where) ?? 0) + 1);
  }
  const rows = [...places].map(([op, counts]) => {
    const [[place]] = [...counts].sort((a, b) => b[1] - a[1]);
    return { op, nodes: [...counts.values()].reduce((total, n) => total + n, 0), place };
  });
  return rows.sort((a, b) => b.nodes - a.nodes);
}

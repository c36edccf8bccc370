// The parts of the report.

import { bytes, make } from '../common.js';

/** @typedef {import('pyruntime').Explanation} Explanation */
/** @typedef {import('pyruntime').MemoryReport} MemoryReport */
/** @typedef {import('pyruntime').Verification} Verification */
/** @typedef {import('pyruntime').InferenceSession.ValueMetadata} ValueMetadata */

/** @param {string} title @param {...(Node | string)} children */
export const card = (title, ...children) => make('section', { class: 'card' }, make('h2', {}, title), ...children);

/** @param {[string, string][]} entries */
export function stats(entries) {
  const parts = entries.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, value)));
  return make('dl', { class: 'stats' }, ...parts);
}

/** @param {string} title @param {readonly ValueMetadata[]} values */
export function signature(title, values) {
  const rows = values.map((value) => make('tr', {}, make('td', { class: 'mono' }, value.name),
    make('td', {}, value.isTensor ? value.type : 'not a tensor'),
    make('td', { class: 'mono' }, value.isTensor ? `[${value.shape.map((dim) => dim || '?').join(', ')}]` : '')));
  const free = values.flatMap((value) => (value.isTensor ? value.shape : [])).find((dim) => typeof dim === 'string');
  const note = free === undefined ? [] : [make('p', { class: 'soft small', style: 'margin: 0.7rem 0 0' }, `${free || '?'} stands for a size that can differ between runs.`)];
  return card(title, scroll(title, table(['Name', 'Type', 'Shape'], rows)), ...note);
}

/** A region that keys can scroll. @param {string} label @param {...Node} children */
export const scroll = (label, ...children) => make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label }, ...children);

/** @param {string[]} names @param {HTMLElement[]} rows */
export const table = (names, rows) => make('table', {}, make('thead', {}, make('tr', {}, ...names.map((name) => make('th', { scope: 'col' }, name)))), make('tbody', {}, ...rows));

/** @param {Explanation} explanation */
export function operators({ operators }) {
  const most = Math.max(1, ...operators.map(({ nodes }) => nodes));
  const rows = operators.map(({ op, nodes, place }) => make('div', { class: 'share', title: `${op}: ${nodes}, on ${place}` },
    make('span', {}, op), make('i', { style: `--share: ${nodes / most}` }), make('span', {}, String(nodes))));
  return scroll('Operators and their number', ...rows);
}

const PLACES = /** @type {Record<string, string>} */ ({ wasm: 'On WebAssembly', webgpu: 'On the GPU', host: 'In Python' });

/** @param {Explanation} explanation */
export function placement({ placement, functions, code }) {
  const where = Object.entries(placement).map(([place, count]) => /** @type {[string, string]} */ ([PLACES[place] ?? place, `${count} calls`]));
  return stats([...where, ['Distinct functions', String(functions)], ['Code', bytes(code)]]);
}

/** The place and the kernels of each node, and the reason if it is not on the GPU. @param {Explanation} explanation */
export function nodes({ nodes: all }) {
  const reasons = all.some(({ why }) => why);
  const rows = all.map(({ node, place, into, kernels, why }) => make('tr', {}, make('td', { class: 'mono' }, node),
    make('td', {}, into ? `${place}, ${into.split(' ').slice(0, 2).join(' ')}` : place), make('td', { class: 'mono' }, kernels.join(', ')),
    ...(reasons ? [make('td', { class: 'soft' }, why)] : [])));
  const made = scroll('Nodes, their places and kernels', table(['Node', 'Where', 'Kernels', ...(reasons ? ['Why not on the GPU'] : [])], rows));
  made.id = 'nodes';
  const words = 'fused: computed by another node’s kernel; view: shares another tensor’s memory; init: computed once, before the first run; plan: computes only shapes';
  return make('div', {}, made, make('p', { class: 'soft small', style: 'margin: 0.7rem 0 0' }, words));
}

/** @param {Verification} verification */
export function verification({ ok, compared, first, tolerance }) {
  if (ok || !first) return make('p', {}, `${compared} results compared: all agree within ${tolerance} of their largest value.`);
  return make('p', { style: 'color: var(--bad)' }, `The first kernel with different results is ${first.node}: element ${first.index} is ${first.actual} on the GPU `
    + `and ${first.expected} on WebAssembly, ${(100 * first.error).toPrecision(2)} % of the largest value.`);
}

/** @param {import('pyruntime').Tuned} tuned */
export function tuning({ choices, before, after, took }) {
  const seconds = `tuning took ${(took / 1000).toFixed(0)} s`;
  if (!Object.keys(choices).length) return `The default schedules are the fastest; ${seconds}.`;
  const kernels = Object.values(choices).reduce((sum, nodes) => sum + Object.keys(nodes).length, 0);
  return `${(before / after).toFixed(2)} times as fast with other schedules for ${kernels} kernels; ${seconds}.`;
}

/** @param {MemoryReport} memory */
export function memory({ weights, peak, arena, requested, gpu }) {
  const entries = /** @type {[string, string][]} */ ([['Weights', bytes(weights)], ['WebAssembly memory', bytes(arena)], ...(gpu ? [['On the GPU', bytes(gpu)]] : [])]);
  if (!peak) return make('div', {}, stats(entries), make('p', { class: 'soft small', style: 'margin: 0.8rem 0 0' }, 'The memory of a run is known after the first run.'));
  return stats([...entries, ['Peak of a run', bytes(peak)], ['Without reuse', bytes(requested)], ['Reuse', `${(requested / peak).toFixed(1)}×`]]);
}

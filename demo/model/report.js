// The parts of the report, as plain DOM.

import { bytes, make, milliseconds, quantile } from '../common.js';

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

/** @param {readonly ValueMetadata[]} values */
export function signature(values) {
  const rows = values.map((value) => make('tr', {}, make('td', { class: 'mono' }, value.name),
    make('td', {}, value.isTensor ? value.type : 'not a tensor'),
    make('td', { class: 'mono' }, value.isTensor ? `[${value.shape.map((dim) => dim || '?').join(', ')}]` : '')));
  return make('div', { class: 'scroll' }, make('table', {},
    make('thead', {}, make('tr', {}, ...['Name', 'Type', 'Shape'].map((name) => make('th', {}, name)))), make('tbody', {}, ...rows)));
}

/** @param {Explanation} explanation */
export function operators({ operators }) {
  const most = Math.max(1, ...operators.map(({ nodes }) => nodes));
  const rows = operators.map(({ op, nodes, place }) => make('div', { class: 'share', title: `${op}: ${nodes}, on ${place}` },
    make('span', {}, op), make('i', { style: `--share: ${nodes / most}` }), make('span', {}, String(nodes))));
  return make('div', { class: 'scroll' }, ...rows);
}

/** @param {Explanation} explanation */
export function placement({ placement, kernels, functions, code, steps }) {
  const where = Object.entries(placement).map(([place, count]) => /** @type {[string, string]} */ ([place, `${count} calls`]));
  return stats([...where, ['Distinct kernels', String(functions)], ['Kernel calls', String(kernels)], ['Steps', String(steps)],
    ['Code', bytes(code)]]);
}

/** What became of each node, and why it is not on the GPU. @param {Explanation} explanation */
export function nodes({ nodes: all }) {
  const rows = all.map(({ node, place, into, kernels, why }) => make('tr', {}, make('td', { class: 'mono' }, node),
    make('td', {}, into ? `${place}, ${into.split(' ').slice(0, 2).join(' ')}` : place), make('td', { class: 'mono' }, kernels.join(', ')),
    make('td', { class: 'soft' }, why)));
  const head = make('tr', {}, ...['Node', 'Where', 'Kernels', 'Why not on the GPU'].map((name) => make('th', {}, name)));
  return make('div', { class: 'scroll', id: 'nodes' }, make('table', {}, make('thead', {}, head), make('tbody', {}, ...rows)));
}

/** @param {Verification} verification */
export function verification({ ok, compared, first, tolerance }) {
  if (ok || !first) return make('p', {}, `${compared} results compared: all agree to ${tolerance} of their largest value.`);
  return make('p', { style: 'color: var(--bad)' }, `The first kernel that differs is ${first.node}: element ${first.index} is ${first.actual} on the GPU `
    + `and ${first.expected} on WebAssembly, ${(100 * first.error).toPrecision(2)} % of the largest value.`);
}

/** @param {MemoryReport} memory */
export function memory({ weights, peak, arena, requested, gpu }) {
  return stats([['Weights', bytes(weights)], ['Peak of a run', bytes(peak)], ['Without reuse', bytes(requested)],
    ['Reuse', peak ? `${(requested / peak).toFixed(1)}×` : '–'], ['Memory held', bytes(arena)],
    ...(gpu ? [/** @type {[string, string]} */ (['On the GPU', bytes(gpu)])] : [])]);
}

/**
 * Every run as a dot over its number, the median as a line.
 * @param {number[]} times
 */
export function latency(times) {
  const [width, height, left, bottom] = [720, 210, 46, 24];
  const top = 1.15 * quantile(times, 0.98) || 1;
  const x = (/** @type {number} */ i) => left + ((width - left - 8) * (i + 0.5)) / times.length;
  const y = (/** @type {number} */ time) => height - bottom - (height - bottom - 8) * Math.min(1, time / top);
  const middle = quantile(times, 0.5);
  const grid = [0, 0.5, 1].map((share) => `<line class="axis" x1="${left}" x2="${width}" y1="${y(share * top)}" y2="${y(share * top)}"/>
    <text x="${left - 6}" y="${y(share * top) + 4}" text-anchor="end">${(share * top).toPrecision(2)}</text>`);
  const dots = times.map((time, i) => `<circle class="mark" cx="${x(i)}" cy="${y(time)}" r="${times.length > 150 ? 1.8 : 2.8}"/>`);
  const line = `<line class="middle" x1="${left}" x2="${width}" y1="${y(middle)}" y2="${y(middle)}"/>
    <text x="${width - 4}" y="${y(middle) - 6}" text-anchor="end">median ${milliseconds(middle)}</text>`;
  const plot = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  plot.setAttribute('viewBox', `0 0 ${width} ${height}`);
  plot.setAttribute('class', 'plot');
  plot.innerHTML = `${grid.join('')}${dots.join('')}${line}<text x="${left}" y="${height - 6}">run 1</text>
    <text x="${width - 4}" y="${height - 6}" text-anchor="end">run ${times.length}, milliseconds</text>`;
  return plot;
}

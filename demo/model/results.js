// Results of runs: outputs and latency.

import { duration, make, quantile } from '../common.js';
import { scroll, stats, table } from './report.js';

const SHOWN = 6; // values of an output
const DOTS = 400; // most times in a plot
const [WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM] = [720, 210, 62, 112, 24]; // pixels of the plot; narrower on small screens

/** @typedef {import('pyruntime').Tensor} Tensor */

/** The first values of each output, and the range of its numbers. @param {Record<string, unknown>} results */
export function outputs(results) {
  const rows = Object.entries(results).map(([name, value]) => make('tr', {}, make('td', { class: 'mono' }, name),
    ...described(value).map((text) => make('td', { class: 'mono' }, text))));
  return scroll('Outputs of the last run', table(['Name', 'Type', 'Values', 'Range'], rows));
}

/** Type and shape, values, range. @param {unknown} value @returns {string[]} */
function described(value) {
  if (Array.isArray(value)) {
    const texts = value.slice(0, 2).map((item) => (item instanceof Map ? `{${brief([...item].flat())}}` : described(item)[1]));
    return [`${value.length} items`, texts.join('; '), ''];
  }
  const { type, dims, data } = /** @type {Tensor} */ (value ?? { type: 'none', dims: [], data: [] });
  const numbers = type === 'string' ? [] : Array.from(/** @type {ArrayLike<number | bigint>} */ (data), Number);
  const [low, high] = numbers.reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
  return [`${type} [${dims.join(', ')}]`, brief([.../** @type {any[]} */ (data).slice(0, SHOWN + 1)]), numbers.length ? `${short(low)} to ${short(high)}` : ''];
}

/** @param {unknown[]} values */
const brief = (values) => values.slice(0, SHOWN).map(short).join(', ') + (values.length > SHOWN ? ', …' : '');

/** @param {unknown} value */
const short = (value) => (typeof value === 'number' && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : String(value));

/** @param {number[]} rest times @param {number} count of runs, unless time ran out */
export function summary(rest, count) {
  const runs = rest.length < count ? `${rest.length} of ${count}` : String(rest.length);
  const why = rest.length < count ? [make('p', { class: 'soft small', style: 'margin: 0.8rem 0 0' }, 'Stopped after five seconds.')] : [];
  return make('div', { style: 'margin-top: 1rem' }, stats([['Median', duration(quantile(rest, 0.5))],
    ['95th percentile', duration(quantile(rest, 0.95))], ['Fastest', duration(quantile(rest, 0))], ['Runs', runs]]), ...why);
}

/** A plot of times by run, with a line at the median. @param {number[]} times */
export function latency(times) {
  const width = Math.min(WIDTH, innerWidth - 80);
  const [right, middle] = [width - RIGHT, quantile(times, 0.5)];
  const top = 1.15 * quantile(times, 0.98) || 1;
  const x = (/** @type {number} */ i) => LEFT + ((right - LEFT) * (i + 0.5)) / times.length;
  const y = (/** @type {number} */ time) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 8) * Math.min(1, time / top);
  const across = (/** @type {number} */ time) => `x1="${LEFT}" x2="${right}" y1="${y(time)}" y2="${y(time)}"`;
  const grid = [0, top / 2, top].map((time) => `<line class="axis" ${across(time)}/>
    <text x="${LEFT - 6}" y="${y(time) + 4}" text-anchor="end">${time ? duration(time) : 0}</text>`);
  const every = Math.ceil(times.length / DOTS);
  const dots = times.flatMap((time, i) => (i % every ? [] : [`<circle class="mark" cx="${x(i)}" cy="${y(time)}" r="${times.length > 150 ? 1.8 : 2.8}"/>`]));
  const plot = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  plot.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  plot.setAttribute('class', 'plot');
  plot.setAttribute('role', 'img');
  plot.setAttribute('aria-label', `Times of ${times.length} runs, the median ${duration(middle)}`);
  plot.innerHTML = `${grid.join('')}${dots.join('')}<line class="middle" ${across(middle)}/>
    <text x="${right + 6}" y="${y(middle) + 4}">median ${duration(middle)}</text>
    <text x="${LEFT}" y="${HEIGHT - 6}">run 1</text><text x="${right}" y="${HEIGHT - 6}" text-anchor="end">run ${times.length}</text>`;
  return plot;
}

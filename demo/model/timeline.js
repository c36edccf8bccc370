// Draws the memory of a run: a rectangle for each buffer, over kernel calls (to the right) and addresses (upwards).

import { bytes, make } from '../common.js';

/** @typedef {NonNullable<import('pyruntime').MemoryReport['timeline']>[number]} Span */

const [WIDTH, HEIGHT, LEFT, BELOW] = [1000, 360, 70, 22];
const NAMES = { linear: 'Linear memory', gpu: 'GPU memory' };

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** The operator of a span, which chooses its colour. @param {Span} span */
const kindOf = ({ name }) => name.split(' ')[0] || 'other';

/** @param {string} kind */
const colour = (kind) => `hsl(${[...kind].reduce((sum, letter) => (31 * sum + letter.charCodeAt(0)) % 360, 7)} 60% 65%)`;

/** Maps addresses to positions, which leave out memory that no span uses (weights). @param {readonly Span[]} spans */
function places(spans) {
  const used = /** @type {[number, number][]} */ ([]);
  for (const [from, to] of spans.map(({ address, size }) => [address, address + size]).sort(([a], [b]) => a - b)) {
    const last = used.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else used.push([from, to]);
  }
  let sum = 0;
  const starts = used.map(([from, to]) => ({ from, to, at: (sum += to - from) - (to - from) }));
  const place = (/** @type {number} */ address) => {
    const found = starts.find(({ from, to }) => from <= address && address < to);
    return found ? found.at + address - found.from : 0;
  };
  return { place, total: sum };
}

/** @param {readonly Span[]} spans of one memory @param {'linear' | 'gpu'} memory */
function panel(spans, memory) {
  const { place, total } = places(spans);
  const end = Math.max(...spans.map((span) => span.end));
  const boxes = spans.map((span) => {
    const height = HEIGHT * span.size / total;
    const [x, y] = [LEFT + WIDTH * span.start / end, HEIGHT * (1 - place(span.address) / total) - height];
    const tip = `${span.name}\n${bytes(span.size)} at ${span.address}, calls ${span.start} to ${span.end - 1}`;
    return svg('rect', { x, y, width: WIDTH * (span.end - span.start) / end, height, fill: colour(kindOf(span)), stroke: 'var(--card, #fff)', 'stroke-width': 0.5 },
      svg('title', {}, tip));
  });
  const label = (/** @type {number} */ x, /** @type {number} */ y, /** @type {string} */ text, anchor = 'end') => (
    svg('text', { x, y, 'text-anchor': anchor, 'font-size': 12, fill: 'currentColor' }, text));
  const words = `${NAMES[memory]}: ${spans.length} buffers over ${end} kernel calls, ${bytes(total)}`;
  const drawing = svg('svg', { viewBox: `0 0 ${LEFT + WIDTH} ${HEIGHT + BELOW}`, class: 'plot', role: 'img', 'aria-label': words },
    ...boxes, label(LEFT - 6, 12, bytes(total)), label(LEFT - 6, HEIGHT, '0'),
    label(LEFT, HEIGHT + 16, 'call 0', 'start'), label(LEFT + WIDTH, HEIGHT + 16, `call ${end}`));
  return make('div', {}, make('p', { class: 'small' }, words), drawing);
}

/** @param {readonly Span[]} spans */
export function timeline(spans) {
  const memories = /** @type {const} */ (['linear', 'gpu']);
  const panels = memories.map((memory) => ({ memory, own: spans.filter((span) => span.memory === memory) }));
  return make('div', {}, ...panels.filter(({ own }) => own.length).map(({ memory, own }) => panel(own, memory)));
}

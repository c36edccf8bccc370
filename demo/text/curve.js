// Draws the time of a token over the length of the text, as medians of pieces.

import { duration, quantile } from '../common.js';

const [WIDTH, HEIGHT, TOP, PIECE] = [600, 70, 14, 12]; // pixels; tokens of a piece

/** @param {Element} plot @param {number[]} times of tokens, in milliseconds */
export function showCurve(plot, times) {
  const pieces = Array.from({ length: Math.floor(times.length / PIECE) }, (_, i) => quantile(times.slice(i * PIECE, (i + 1) * PIECE), 0.5));
  if (pieces.length < 2) return plot.replaceChildren();
  const most = Math.max(...pieces) * 1.15;
  const points = pieces.map((time, i) => `${(WIDTH * (i + 0.5)) / pieces.length},${TOP + HEIGHT * (1 - time / most)}`);
  plot.innerHTML = `<line class="axis" x1="0" x2="${WIDTH}" y1="${TOP + HEIGHT}" y2="${TOP + HEIGHT}"/>
    <polyline points="${points.join(' ')}" fill="none" stroke="var(--accent)" stroke-width="2"/>
    <text x="0" y="11">${duration(pieces[0])} a token at first, ${duration(pieces.at(-1) ?? 0)} after ${times.length} tokens</text>`;
}

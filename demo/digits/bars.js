// Ten probabilities as bars, and the most probable digit.

import { $, make } from '../common.js';

/** @param {ArrayLike<number> | null} shares null: no result yet */
export function showBars(shares) {
  const all = Array.from(shares ?? new Array(10).fill(0));
  const best = shares ? all.indexOf(Math.max(...all)) : -1;
  const rows = all.map((share, digit) => make('div', digit === best ? { class: 'top' } : {}, make('span', {}, `${digit}`),
    make('i', { style: `--share: ${share}` }), make('span', {}, `${(100 * share).toFixed(1)}\u00a0%`)));
  $('#bars').replaceChildren(...rows);
  $('#digit').textContent = shares ? String(best) : '–';
}

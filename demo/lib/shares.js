// Probabilities of a classifier as bars, and the name of the most probable class.

import { make } from '../common.js';

/** @param {Element} place @param {Element} answer @param {string[]} names @param {number[] | null} shares null: no result */
export function showShares(place, answer, names, shares) {
  const best = shares ? shares.indexOf(Math.max(...shares)) : -1;
  place.replaceChildren(...names.map((name, n) => make('div', n === best ? { class: 'top' } : {},
    make('span', {}, name), make('i', { style: `--share: ${shares?.[n] ?? 0}` }), make('span', {}, shares ? `${Math.round(100 * shares[n])}\u00a0%` : ''))));
  const text = names[best] ?? '–';
  if (answer.textContent !== text) answer.textContent = text; // screen readers read each change
}

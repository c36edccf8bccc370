// What a classifier takes for what: a row for each class, with the mean probabilities that its examples get.

import { make, softmax } from '../common.js';

/** label: the class of an example; scores: of each class. @typedef {{ label: number, scores: number[] }} Result */

/** The share of results whose best class is their own; undefined without any. @param {Result[]} results */
export function accuracyOf(results) {
  const right = results.filter(({ label, scores }) => scores.indexOf(Math.max(...scores)) === label);
  return results.length ? right.length / results.length : undefined;
}

/** @param {Element} place @param {string[]} names of the classes @param {Result[]} results */
export function showConfusion(place, names, results) {
  if (!results.length) {
    place.replaceChildren(make('caption', { class: 'soft' }, 'Nothing has been tested yet.'));
    return;
  }
  const rows = names.map((name, label) => {
    const own = results.filter((result) => result.label === label).map(({ scores }) => softmax(scores));
    const cells = names.map((_, n) => {
      const share = own.length ? own.reduce((sum, shares) => sum + shares[n], 0) / own.length : 0;
      return make('td', { class: n === label ? 'right' : '', style: `--share: ${share.toFixed(3)}` }, own.length && share >= 0.005 ? `${Math.round(100 * share)}` : '');
    });
    return make('tr', {}, make('th', { scope: 'row' }, name), ...cells);
  });
  const head = make('tr', {}, make('td'), ...names.map((name) => make('th', { scope: 'col' }, name)));
  place.replaceChildren(make('thead', {}, head), make('tbody', {}, ...rows));
}

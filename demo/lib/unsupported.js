// The state of a page, or of a part of it, that this browser or this host cannot show, with what to do instead.

import { make } from '../common.js';

/**
 * @param {string} why a sentence @param {...(Node | string)} instead what the visitor can do
 * @returns {HTMLElement}
 */
export function unsupported(why, ...instead) {
  return make('div', { class: 'unsupported', role: 'status' }, make('strong', {}, why), ...(instead.length ? [make('p', {}, ...instead)] : []));
}

/** @param {string} href @param {string} text */
export const link = (href, text) => make('a', { href }, text);

// A dialog with files of code, one tab for each.

import { make } from '../common.js';
import { highlighted, languageOf } from './highlight.js';

/** @typedef {{ name: string, url: string }} File */

/** @param {File[]} files @param {string} [title] */
export async function showCode(files, title = 'The code of this page') {
  const dialog = /** @type {HTMLDialogElement} */ (make('dialog', { class: 'code', 'aria-label': title }));
  const close = make('button', { class: 'plain', 'aria-label': 'Close' }, '✕');
  close.addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => dialog.remove());
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  dialog.append(make('div', { class: 'row' }, make('h2', {}, title), close), codeTabs(files));
  document.body.append(dialog);
  dialog.showModal();
}

/** Tabs with the files' text. The first one is loaded at once. @param {File[]} files */
export function codeTabs(files) {
  const shown = make('pre', { class: 'listing', tabindex: 0 });
  const copy = make('button', { class: 'small' }, 'Copy');
  copy.addEventListener('click', () => navigator.clipboard?.writeText(shown.textContent ?? ''));
  const tabs = files.map((file) => {
    const tab = make('button', { role: 'tab', class: 'tab', 'aria-selected': 'false' }, file.name.split('/').at(-1) ?? '');
    tab.addEventListener('click', async () => {
      for (const other of tabs) other.setAttribute('aria-selected', String(other === tab));
      const lines = highlighted(await text(file.url), languageOf(file.name));
      if (tab.getAttribute('aria-selected') === 'false') return; // another tab was chosen meanwhile
      shown.setAttribute('aria-label', file.name);
      shown.replaceChildren(lines);
    });
    return tab;
  });
  tabs[0]?.click();
  return make('div', { class: 'code-tabs' }, make('div', { class: 'row' }, make('div', { role: 'tablist', 'aria-label': 'Files' }, ...tabs), copy), shown);
}

/** @param {string} url */
async function text(url) {
  const response = await fetch(url);
  return response.ok ? response.text() : `// This file cannot be loaded: ${response.status}`;
}

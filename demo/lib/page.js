// What each page of the site has: the theme switch, the code of the page, a link to its state, and offline visits.

import './offline.js';
import { showCode } from './code_dialog.js';
import { flushState } from './url_state.js';

const script = /** @type {HTMLElement} */ (document.querySelector('script[data-root]'));
const { root = '', code = '' } = script.dataset;

/** @param {string} selector @param {(button: HTMLButtonElement) => unknown} pressed */
function onPress(selector, pressed) {
  const button = /** @type {HTMLButtonElement | null} */ (document.querySelector(selector));
  button?.addEventListener('click', () => pressed(button));
}

/** Moves the focus to the content. Following the link would replace the page's state in the address. @param {Event} event */
function skip(event) {
  event.preventDefault();
  /** @type {HTMLElement | null} */ (document.querySelector('main'))?.focus();
}

/** Null where the browser refuses storage. @template T @param {(storage: Storage) => T} use */
function withStorage(use) {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

/** Light or dark: the system's theme until the user chooses one. */
function switchTheme() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  withStorage((storage) => storage.setItem('theme', dark ? 'light' : 'dark'));
  document.dispatchEvent(new Event('themechange'));
}

/** Copies the page's address, in which the page has put its state. @param {HTMLButtonElement} button */
async function copyLink(button) {
  await flushState();
  const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
  button.textContent = copied ? 'Link copied' : 'The address bar has the link';
  setTimeout(() => { button.textContent = 'Copy link'; }, 2000);
}

/** A module whose only function adds lanes of vectors: it is valid where WebAssembly has SIMD. */
const SIMD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];

/** Says what the browser lacks without which no page of the site works. */
function checkBrowser() {
  const hasSimd = typeof WebAssembly === 'object' && WebAssembly.validate(new Uint8Array(SIMD));
  if (hasSimd && typeof Worker === 'function') return;
  const text = 'This browser lacks WebAssembly SIMD or web workers. These pages work in Chrome and Edge 91, Firefox 89, Safari 16.4 and newer.';
  document.querySelector('main')?.prepend(Object.assign(document.createElement('p'), { className: 'unsupported', role: 'alert', textContent: text }));
}

const stored = withStorage((storage) => storage.getItem('theme'));
if (stored) document.documentElement.dataset.theme = stored;
onPress('#theme', switchTheme);
document.querySelector('.skip')?.addEventListener('click', skip);
onPress('#view-code', () => showCode(code.split(' ').map((file) => ({ name: file, url: new URL(root + file, document.baseURI).href }))));
onPress('#copy-link', copyLink);
checkBrowser();

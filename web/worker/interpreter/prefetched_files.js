// What the page fetches of the interpreter while the worker starts (web/page/engine/prefetch.js).

import { importModule } from './engine_files.js';
import { warmUp } from './split_wasm.js';

/** @typedef {import('../../common/protocol.js').Early} Early */
/** @template T @typedef {(value: T) => void} Give */

export class PrefetchedFiles {
  /** @param {string} asm address of Pyodide's JavaScript */
  constructor(asm) {
    this.asm = asm;
  }

  /** @type {Give<WebAssembly.Module | null>} */
  #giveModule = () => {};
  /** @type {Give<ArrayBuffer | null>} */
  #giveImage = () => {};

  module = new Promise((/** @type {Give<WebAssembly.Module | null>} */ give) => { this.#giveModule = give; });
  image = new Promise((/** @type {Give<ArrayBuffer | null>} */ give) => { this.#giveImage = give; });

  /** @param {Early} early */
  take(early) {
    if ('module' in early) {
      if (early.module) {
        importModule(this.asm).catch(() => {}); // told where it is awaited
        warmUp(early.module); // while its JavaScript and the image come
      }
      this.#giveModule(early.module);
    } else this.#giveImage(early.image);
  }
}

// Files of the interpreter that the page fetches while the worker starts (page/engine/prefetch.js).

import { importModule } from './engine_files.js';
import { warmUp } from './split_wasm.js';

/** @import { Prefetched } from '../../common/protocol.js' */
/** @template T @typedef {(value: T | null) => void} Resolve */

export class PrefetchedFiles {
  /** @param {string} asm address of Pyodide's JavaScript */
  constructor(asm) {
    this.asm = asm;
  }

  /** @type {Resolve<WebAssembly.Module>} */
  #resolveModule = () => {};
  /** @type {Resolve<ArrayBuffer>} */
  #resolveImage = () => {};

  module = new Promise((/** @type {Resolve<WebAssembly.Module>} */ resolve) => { this.#resolveModule = resolve; });
  image = new Promise((/** @type {Resolve<ArrayBuffer>} */ resolve) => { this.#resolveImage = resolve; });

  /** @param {Prefetched} file */
  take(file) {
    if ('image' in file) return this.#resolveImage(file.image);
    if (file.module) {
      importModule(this.asm).catch(() => {}); // its error is handled where it is awaited
      warmUp(file.module); // while its JavaScript and the image are downloaded
    }
    this.#resolveModule(file.module);
  }
}

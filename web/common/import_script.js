// Imports a script of the engine.

import { SessionFailed } from './errors.js';
import { HINT, scriptUrl } from './spawn.js';

/**
 * A module of a separate bundle: a function that takes the modules which it shares, by file.
 * @template Code @typedef {{ default(shared: (file: string) => object): Code }} Sharing
 */

/** @template Module @param {string} url @returns {Promise<Module>} */
export async function importScript(url) {
  const address = await scriptUrl(url);
  // With a constant address bundlers would make a chunk, which rollup's single-file scripts cannot have.
  return import(/* webpackIgnore: true */ /* @vite-ignore */ address).catch((cause) => {
    throw new SessionFailed(`cannot load ${url}: ${cause.message}`, { hint: HINT, cause });
  });
}

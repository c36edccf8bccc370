// On a first visit the page fetches and compiles the interpreter while its worker starts, which takes some 100 ms.

import { PROGRAMS } from '../storage/names.js';
import { cacheStorage } from '../storage/sealed_cache.js';

/** @typedef {import('../common/protocol.js').Early} Early */

/**
 * Not where an earlier page left Programs, which may do without. What cannot be had is null: the worker fetches it then,
 * and tells what is wrong with it.
 * @param {import('./assets.js').AssetUrls} urls @param {(early: Early, transfer?: Transferable[]) => void} give
 */
export async function fetchEarly({ wasm, image }, give) {
  const visited = await cacheStorage()?.has(PROGRAMS).catch(() => false); // storage is forbidden here
  const compiled = visited ? null : WebAssembly.compileStreaming(fetch(wasm)).catch(() => null);
  const bytes = visited ? null : fetch(image).then((response) => (response.ok ? response.arrayBuffer() : null)).catch(() => null);
  await Promise.all([
    Promise.resolve(compiled).then((module) => give({ module })),
    Promise.resolve(bytes).then((found) => give({ image: found }, found ? [found] : [])),
  ]);
}

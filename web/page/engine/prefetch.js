// On a first visit the page fetches and compiles the interpreter while its worker starts, which takes some 100 ms.

import { PROGRAMS } from '../../storage/names.js';
import { cacheStorage } from '../../storage/sealed_cache.js';

/** @typedef {import('../../common/protocol.js').Early} Early */

/**
 * Not where an earlier page left Programs, which may do without. What cannot be had is null: the worker fetches it then,
 * and tells what is wrong with it.
 * @param {import('./assets.js').AssetUrls} urls @param {(early: Early, transfer?: Transferable[]) => void} give
 */
export async function prefetch({ wasm, image }, give) {
  const known = async () => cacheStorage()?.has(PROGRAMS);
  const visited = await known().catch(() => false); // storage is forbidden here
  const compiled = async () => WebAssembly.compileStreaming(fetch(wasm));
  const fetched = async () => {
    const response = await fetch(image);
    return response.ok ? response.arrayBuffer() : null;
  };
  const unless = async (/** @type {() => Promise<any>} */ get) => (visited ? null : get().catch(() => null));
  unless(compiled).then((module) => give({ module }));
  unless(fetched).then((bytes) => give({ image: bytes }, bytes ? [bytes] : []));
}

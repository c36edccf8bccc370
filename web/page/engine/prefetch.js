// On a first visit the page fetches and compiles the interpreter while its worker starts, which takes some 100 ms.

import { PROGRAMS, sourceParameter } from '../../storage/names.js';
import { cacheStorage } from '../../storage/sealed_cache.js';

/** @import { Origin, Prefetched } from '../../common/protocol.js' */

/**
 * Fetches nothing if an earlier page cached Programs of a model from the same source, because the worker may not need Python. A file that
 * cannot be fetched is null: the worker fetches it again and reports the error.
 * @param {import('./assets.js').AssetUrls} urls @param {Origin} model @param {(file: Prefetched, transfer?: Transferable[]) => void} send
 */
export async function prefetch({ wasm, image }, model, send) {
  const hasPrograms = async () => {
    const storage = cacheStorage();
    if (!await storage?.has(PROGRAMS)) return false;
    return (await (await /** @type {CacheStorage} */ (storage).open(PROGRAMS)).keys()).some(({ url }) => url.includes(sourceParameter(model)));
  };
  const visited = await hasPrograms().catch(() => false); // storage is forbidden here
  const compile = async () => WebAssembly.compileStreaming(fetch(wasm));
  const download = async () => {
    const response = await fetch(image);
    return response.ok ? response.arrayBuffer() : null;
  };
  /** @template T @param {() => Promise<T>} get */
  const orNull = async (get) => (visited ? null : get().catch(() => null));
  orNull(compile).then((module) => send({ module }));
  orNull(download).then((bytes) => send({ image: bytes }, bytes ? [bytes] : []));
}

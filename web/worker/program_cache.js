// Programs that earlier pages compiled, kept in the browser's cache: later pages open them without Python (ADR 17).

import { BUILD } from './build.js';
import { hostStep, toBytes } from './program_file.js';
import { digest } from '../storage/digest.js';
import { WRITE_DELAY } from './interpreter_snapshot.js';
import { cacheStorage, keep, unseal } from '../storage/sealed_cache.js';

/** @typedef {import('../common/protocol.js').Origin} Origin */

const CACHE = 'pyruntime-programs';
/** Programs kept on an origin, the newest, and bytes of one: most take 60 to 260 KB. */
const MOST = 16;
const LARGEST = 4 * 2 ** 20;

/**
 * The place for Programs of models from this origin, compiled with these options; null where nothing is kept.
 * @param {string} engine address of the engine
 * @param {Origin} model
 * @param {Record<string, any>} options as Python is told them
 * @returns {Promise<CachedPrograms | null>}
 */
export async function cachedPrograms(engine, model, options) {
  if (!BUILD || !cacheStorage() || !cacheable(options)) return null;
  try {
    const cache = await caches.open(CACHE);
    const name = new URL(engine);
    name.hash = '';
    name.search = `?program=${await digest(new TextEncoder().encode(JSON.stringify([BUILD, source(model), options])))}&model=`;
    const known = (await cache.keys()).some(({ url }) => url.startsWith(name.href));
    return new CachedPrograms(cache, name.href, known);
  } catch {
    return null; // storage is forbidden here
  }
}

/** Not for the GPU: shaders are for one adapter. @param {Record<string, any>} options */
function cacheable({ executionProviders, uncached }) {
  return executionProviders?.[0] !== 'webgpu' && !uncached;
}

/** What is known of a model before its bytes are: for an address of this page alone, nothing. @param {Origin} model */
const source = (model) => ('url' in model ? /^http/.test(model.url) && model.url : 'bytes' in model ? model.bytes.length : model.blob.size);

/** Where the Programs of one source lie, by the hash of the model. */
class CachedPrograms {
  /** @param {Cache} cache @param {string} prefix of names @param {boolean} known whether there is one */
  constructor(cache, prefix, known) {
    this.cache = cache;
    this.prefix = prefix;
    this.known = known;
    /** @type {Promise<string> | null} */
    this.named = null;
  }

  /** @param {Uint8Array} model */
  name(model) {
    this.named ??= digest(model).then((hash) => this.prefix + hash);
    return this.named;
  }

  /** The Program of this very model, as a file; null if there is none, or not as it was written. @param {Uint8Array} model */
  async find(model) {
    if (!this.known) return null;
    try {
      const name = await this.name(model);
      const found = await this.cache.match(name);
      if (!found) return null;
      const bytes = await unseal(found, name);
      if (bytes) return bytes;
      await this.remove(model);
    } catch {} // forbidden, or a model in shared memory: it is compiled
    return null;
  }

  /** One that cannot run here. @param {Uint8Array} model */
  async remove(model) {
    await this.name(model).then((name) => this.cache.delete(name)).catch(() => {});
  }

  /** Keeps the Program for later pages, if it is for all feeds and needs no Python. @param {Uint8Array} bytes @param {import('../session/model.js').Model} model */
  save(bytes, model) {
    const program = model.programs.get('');
    if (!program || model.needs || hostStep(program.header)) return;
    const { header, blob } = program;
    const more = { types: JSON.parse(model.proxy.info), threads: model.host.threads };
    if (blob.length > LARGEST) return;
    const write = () => this.write(bytes, toBytes({ ...header, ...more }, blob));
    setTimeout(() => write().catch(() => {}), WRITE_DELAY); // no room, or forbidden: the next page compiles, too
  }

  /** @param {Uint8Array} model @param {Uint8Array<ArrayBuffer>} program */
  async write(model, program) {
    await keep(this.cache, await this.name(model), program, MOST);
  }
}

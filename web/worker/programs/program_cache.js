// Programs that earlier pages compiled, kept in the browser's cache: later pages open them without Python
// (docs/design/storage.md#program-cache).

import { BUILD } from '../build.js';
import { pack, unpack } from './program_bundle.js';
import { hostStep } from './program_file.js';
import { digest } from '../../storage/digest.js';
import { PROGRAMS } from '../../storage/names.js';
import { cacheStorage, keep, unseal } from '../../storage/sealed_cache.js';

/** @typedef {import('../../common/protocol.js').Origin} Origin */
/** @typedef {import('./program_bundle.js').Bundle} Bundle */
/** @typedef {import('../models/model_file.js').Files} Files */

/** Models on an origin whose Programs are kept, the newest, and bytes of one: most take 60 to 260 KB, shaders up to 2 MB. */
const MOST = 16;
const LARGEST = 4 * 2 ** 20;
/** Milliseconds until they are written: not while the first session starts. */
const WRITE_DELAY = 2000;
/** Between pieces of files that are hashed for it, which are 4 MiB: a piece takes some 20, which runs wait for. */
const PAUSE = 50;

const text = new TextEncoder();

/**
 * The place for Programs of models from these origins, compiled with these options; null where nothing is kept.
 * @param {string} engine address of the engine
 * @param {Origin[]} origins of the model and of its files
 * @param {Record<string, any>} options as Python is told them
 * @param {Promise<Record<string, unknown> | null>} gpu as Python is told of it
 * @returns {Promise<CachedPrograms | null>}
 */
export async function cachedPrograms(engine, origins, options, gpu) {
  if (!BUILD || !cacheStorage() || options.uncached) return null;
  try {
    const cache = await caches.open(PROGRAMS);
    const name = new URL(engine);
    name.hash = '';
    name.search = `?program=${await digest(text.encode(JSON.stringify([BUILD, origins.map(source), options])))}`;
    const known = (await cache.keys()).map(({ url }) => url).filter((url) => url.startsWith(name.href));
    const prefix = gpu.then(async (told) => `${name.href}&gpu=${told ? await digest(text.encode(JSON.stringify(told))) : ''}&model=`);
    return new CachedPrograms(cache, prefix, known);
  } catch {
    return null; // storage is forbidden here
  }
}

/** What is known of a model before its bytes are: for an address of this page alone, nothing. @param {Origin} model */
function source(model) {
  if ('url' in model) return /^http/.test(model.url) && model.url;
  if ('handle' in model) return model.handle.name;
  return 'bytes' in model ? model.bytes.length : 'blob' in model && model.blob.size;
}

/** Where the Programs of one source lie, by the GPU and the hash of the model. */
class CachedPrograms {
  /** @param {Cache} cache @param {Promise<string>} prefix of names @param {string[]} known names, perhaps for other GPUs, the newest last */
  constructor(cache, prefix, known) {
    this.cache = cache;
    this.prefix = prefix;
    this.names = known;
    /** @type {Promise<string> | null} */
    this.named = null;
    /** By their names. @type {Map<string, Promise<Bundle | null>>} */
    this.read = new Map();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** Until nothing is to be written any more, for which files are read. @type {Promise<void>} */
    this.written = Promise.resolve();
  }

  get known() {
    return this.names.length > 0;
  }

  /** @param {Files} files @param {number} [pause] as `FileOnDisk.hash` has it */
  name(files, pause) {
    this.named ??= Promise.all([...files].sort().map(async ([path, file]) => `${path} ${await file.hash(pause)}`))
      .then(async (hashes) => await this.prefix + await digest(text.encode(hashes.join('\n'))));
    return this.named;
  }

  /** What the newest entry holds, most likely the right one: there is time while the model is fetched. */
  async guess() {
    const prefix = await this.prefix;
    const name = this.names.findLast((known) => known.startsWith(prefix));
    return name ? this.load(name).catch(() => null) : null;
  }

  /** @param {string} name @returns {Promise<Bundle | null>} null: none, or not as it was written */
  load(name) {
    let found = this.read.get(name);
    if (!found) {
      found = this.cache.match(name).then(async (response) => {
        const bytes = response && await unseal(response, name);
        if (response && !bytes) await this.cache.delete(name);
        return bytes ? unpack(bytes) : null;
      });
      this.read.set(name, found);
    }
    return found;
  }

  /** The Programs of this very model. @param {Files} files */
  async find(files) {
    if (!this.known) return null;
    try {
      return await this.load(await this.name(files));
    } catch {
      await this.remove(files); // it cannot be read
      return null; // or forbidden, or a model in shared memory: it is compiled
    }
  }

  /** One that cannot run here. @param {Files} files */
  async remove(files) {
    await this.name(files).then((name) => this.cache.delete(name)).catch(() => {});
  }

  /** Keeps the Programs for later pages, those that need no Python. @param {Files} files @param {Bundle} kept */
  save(files, { info, needs, programs }) {
    const able = new Map([...programs].filter(([, { header }]) => !hostStep(header)));
    const size = [...able.values()].reduce((sum, { blob }) => sum + blob.length, 0);
    if (!able.size || size > LARGEST) return;
    clearTimeout(this.timer); // more of them
    const write = async () => keep(this.cache, await this.name(files, PAUSE), pack({ info, needs, programs: able }), MOST);
    this.written = new Promise((done) => {
      this.timer = setTimeout(() => write().then(done, () => done()), WRITE_DELAY); // no room, or forbidden: the next page compiles, too
    });
  }
}

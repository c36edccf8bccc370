// Caches compiled Programs in the browser, so that later pages open them without Python
// (docs/design/storage.md#program-cache).

import { BUILD } from '../build.js';
import { digestOf, sizesOf } from '../files/read_ranges.js';
import { readerOf } from '../files/reader.js';
import { pack, unpack } from './program_bundle.js';
import { hostStep } from './program_file.js';
import { addedNames } from '../providers/named.js';
import { digest } from '../../storage/digest.js';
import { PROGRAMS, sourceOf, sourceParameter } from '../../storage/names.js';
import { cacheStorage, store, unseal } from '../../storage/sealed_cache.js';

/** @import { CreateParams } from '../../common/protocol.js' */
/** @import { Interpreter } from '../interpreter/interpreter.js' */
/** @import { Files } from '../files/model_file.js' */
/** @import { Range } from '../files/read_ranges.js' */
/** @import { Bundle } from './program_bundle.js' */

const MAX_ENTRIES = 16; // models of an origin: the cache stores only the newest
const LARGEST = 4 * 2 ** 20; // most bytes of a model's Programs: most have 60 to 260 KB, those with shaders up to 2 MB
const WRITE_DELAY = 2000; // ms, so that the cache does not write while the first session starts

const text = new TextEncoder();

/** @param {unknown} value */
const hash = (value) => digest(text.encode(JSON.stringify(value)));

/**
 * The entries for models from the origins of a call, compiled with these options; null without a cache.
 * @param {Pick<CreateParams, 'model' | 'external'>} params of the call @param {Record<string, unknown>} options of the compiler
 * @param {Promise<Record<string, unknown> | null>} gpu that the compiler writes code for @param {Interpreter} interpreter
 * @returns {Promise<CachedPrograms | null>}
 */
export async function cachedPrograms({ model, external }, options, gpu, { assets, customised }) {
  if (!BUILD || !cacheStorage() || options.uncached || !assets || customised || addedNames(options).length) return null;
  try {
    const cache = await caches.open(PROGRAMS);
    const { engine } = assets;
    const origins = [model, ...external.map(({ origin }) => origin)];
    const name = new URL(/^(data|blob):/.test(engine) ? 'engine.zip' : engine, globalThis.origin); // caches hold http addresses only
    name.hash = '';
    name.search = `?program=${await hash([BUILD, origins.map(sourceOf), options])}${sourceParameter(origins[0])}`;
    const known = (await cache.keys()).map(({ url }) => url).filter((url) => url.startsWith(name.href));
    const prefix = gpu.then(async (adapter) => `${name.href}gpu=${adapter ? await hash(adapter) : ''}&model=`);
    return new CachedPrograms(cache, prefix, known);
  } catch {
    return null; // storage is forbidden here
  }
}

/** Entries of one source, by the GPU and the hash of the model. */
export class CachedPrograms {
  /**
   * @param {Cache} cache @param {Promise<string>} prefix of names
   * @param {string[]} known names of entries, perhaps for other GPUs, the newest last
   */
  constructor(cache, prefix, known) {
    this.cache = cache;
    this.prefix = prefix;
    this.names = known;
    /** Name of the model's entry, once it is known. */
    this.entry = '';
    /** A name by all bytes of the model's files. @type {Promise<string> | null} */
    this.whole = null;
    /** By name of the entry. @type {Map<string, Promise<Bundle | null>>} */
    this.read = new Map();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** Resolves when the entry is written: until then the cache reads the model's files. @type {Promise<void>} */
    this.written = Promise.resolve();
  }

  get hasEntries() {
    return this.names.length > 0;
  }

  /** @param {Files} files @param {number} [pause] as `FileOnDisk.hash` has it */
  name(files, pause) {
    this.whole ??= Promise.all([...files].sort().map(async ([path, file]) => `${path} ${await file.hash(pause)}`))
      .then(async (hashes) => await this.prefix + await digest(text.encode(hashes.join('\n'))));
    return this.whole;
  }

  /** The name of an entry of Programs that depend on these bytes. @param {Files} files @param {Range[]} reads */
  async nameFor(files, reads) {
    return await this.prefix + await digestOf(files, readerOf(files), reads);
  }

  /** Reads the newest entry, which is most likely the right one, while the model is downloaded. */
  async guess() {
    const prefix = await this.prefix;
    const name = this.names.findLast((known) => known.startsWith(prefix));
    return name ? this.load(name).catch(() => null) : null;
  }

  /** @param {string} name @returns {Promise<Bundle | null>} null if there is none, or it is damaged */
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

  /**
   * The newest Programs that were compiled from bytes that these files have, too.
   * @param {Files} files @returns {Promise<Bundle | null>}
   */
  async find(files) {
    if (!this.hasEntries) return null;
    const prefix = await this.prefix;
    for (const name of this.names.filter((known) => known.startsWith(prefix)).reverse()) {
      const bundle = await this.load(name).catch(() => this.cache.delete(name).then(() => null, () => null)); // it cannot be read
      const fits = bundle && await this.nameFor(files, bundle.reads).catch(() => ''); // files are shorter, or in shared memory
      if (fits !== name) continue;
      this.entry = name;
      return bundle;
    }
    return null;
  }

  /** Removes the entry that `find` found: this browser cannot run it. */
  async remove() {
    await this.cache.delete(this.entry).catch(() => {});
  }

  /** Stores the Programs that run without Python. @param {Files} files @param {Omit<Bundle, 'sizes'>} bundle */
  save(files, { programs, ...about }) {
    const portable = new Map([...programs].filter(([, { header }]) => !hostStep(header)));
    const size = [...portable.values()].reduce((sum, { blob }) => sum + blob.length, 0);
    if (!portable.size || size > LARGEST) return;
    clearTimeout(this.timer); // replaces a write that waits
    const write = async () => {
      const name = await this.nameFor(files, about.reads);
      await store(this.cache, name, pack({ ...about, sizes: sizesOf(files), programs: portable }), MAX_ENTRIES);
      if (this.entry && this.entry !== name) await this.remove(); // its Programs are in the new entry
      this.entry = name;
    };
    this.written = new Promise((done) => {
      // if storage is full or forbidden, the next page compiles again
      this.timer = setTimeout(() => write().then(done, () => done()), WRITE_DELAY);
    });
  }
}

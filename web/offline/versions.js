// What the page keeps for visits without a network: files by their hashes, in Cache Storage, and a book of versions, each
// a list of files that belong together. Page and service worker write the book in turns.

import { digest } from '../storage/digest.js';
import { seal, unseal } from '../storage/sealed_cache.js';
import { withinQuota } from '../storage/quota.js';

/** hash: SHA-256 of the bytes, in hexadecimal. @typedef {{ url: string, size: number, hash: string }} OfflineFile */
/** name: of its files' hashes; build: of the engine. @typedef {{ name: string, build: string, files: OfflineFile[] }} Version */
/**
 * What a page wants kept: the folder of the engine's files, lists of files with hashes, files, models.
 * @typedef {{ engine: string, lists: string[], files: string[], models: { url: string, version: string }[] }} Wanted
 */
/** Of which version a page or a worker is, and since when, in milliseconds since 1970. @typedef {{ name: string, since: number }} Page */
/** versions: the newest last; pages: by their ids. @typedef {{ wanted: Wanted | null, versions: Version[], pages: Record<string, Page> }} Book */

const BOOK = 'pyruntime-offline';
/** Headers that tell of the way here, not of the file. */
const OF_THE_WAY = ['content-encoding', 'content-length', 'transfer-encoding', 'connection', 'keep-alive', 'set-cookie', 'vary', 'clear-site-data'];
const MINUTE = 60_000;

export class Versions {
  /** @param {Cache} cache @param {string} scope */
  constructor(cache, scope) {
    this.cache = cache;
    this.lock = nameFor(scope);
    this.place = `${scope}?${BOOK}`;
  }

  /** Those of a service worker. @param {string} scope its address */
  static async open(scope) {
    return new Versions(await caches.open(nameFor(scope)), scope);
  }

  /** A damaged book counts as an empty one. @returns {Promise<Book>} */
  async read() {
    const found = await this.cache.match(this.place);
    const bytes = found && await unseal(found, this.place);
    return bytes ? JSON.parse(new TextDecoder().decode(bytes)) : { wanted: null, versions: [], pages: {} };
  }

  /** One at a time. @param {(book: Book) => unknown} action changes the book @returns {Promise<Book>} */
  change(action) {
    return navigator.locks.request(this.lock, async () => {
      const book = await this.read();
      await action(book);
      const bytes = new TextEncoder().encode(JSON.stringify(book));
      await this.cache.put(this.place, new Response(bytes, { headers: { etag: await seal(this.place, bytes) } }));
      return book;
    });
  }

  /** Fetches or removes: one page at a time. @template T @param {() => Promise<T>} action @returns {Promise<T>} */
  inTurn(action) {
    return navigator.locks.request(`${this.lock} update`, action);
  }

  /** @param {OfflineFile} file */
  key({ url, hash }) {
    const key = new URL(url);
    key.searchParams.set(BOOK, hash);
    return key.href;
  }

  /** As it was fetched; null if there is none, or not as it was written. @param {OfflineFile} file @returns {Promise<Response | null>} */
  async find(file) {
    const found = await this.cache.match(this.key(file));
    if (!found) return null;
    const bytes = await found.arrayBuffer();
    return await digest(new Uint8Array(bytes)) === file.hash ? new Response(bytes, { headers: found.headers }) : null;
  }

  /** What the server told of a file. @param {OfflineFile} file */
  async headers(file) {
    return (await this.cache.match(this.key(file)))?.headers ?? new Headers();
  }

  /** @param {OfflineFile} file @param {Uint8Array<ArrayBuffer>} bytes @param {Headers} told by the server */
  async keep(file, bytes, told) {
    const headers = new Headers(told);
    for (const name of OF_THE_WAY) headers.delete(name);
    await withinQuota(file.url, bytes.length, () => this.cache.put(this.key(file), new Response(bytes, { headers })));
  }

  /** From now on this is the newest. @param {Version} version @param {Wanted} wanted */
  add(version, wanted) {
    return this.change((book) => {
      book.wanted = wanted;
      book.versions = [...book.versions.filter(({ name }) => name !== version.name), version];
    });
  }

  /**
   * Removes versions that no page is of, but for the newest, and their files; not while a page fetches, whose files are of
   * no version yet. @param {string[]} alive ids of pages and workers @param {boolean} loose files of no version, too
   */
  tidy(alive, loose) {
    return navigator.locks.request(`${this.lock} update`, { ifAvailable: true }, (lock) => lock && this.change(async (book) => {
      const all = await this.cache.keys();
      const before = this.keys(book);
      const young = Object.entries(book.pages).filter(([, { since }]) => Date.now() - since < MINUTE); // perhaps not alive yet
      const pages = alive.map((id) => /** @type {[string, Page]} */ ([id, { name: versionOf(id, book)?.name ?? '', since: 0 }]));
      book.pages = Object.fromEntries([...pages.filter(([, { name }]) => name), ...young]);
      const used = new Set(Object.values(book.pages).map(({ name }) => name));
      book.versions = book.versions.filter(({ name }, i, { length }) => i === length - 1 || used.has(name));
      const after = this.keys(book);
      await Promise.all(all.map(({ url }) => (loose || before.has(url)) && !after.has(url) && this.cache.delete(url)));
    }));
  }

  /** Of all that is kept. @param {Book} book */
  keys({ versions }) {
    return new Set([this.place, ...versions.flatMap(({ files }) => files.map((file) => this.key(file)))]);
  }
}

/**
 * That of a page or of a worker. One that is not known is a worker, of the page there is, or a page that was there before
 * anything was kept. @param {string} id @param {Book} book
 */
export function versionOf(id, { pages, versions }) {
  const [name, ...others] = new Set((id in pages ? [pages[id]] : Object.values(pages)).map((page) => page.name));
  return versions.find((version) => version.name === name && !others.length) ?? versions.at(-1);
}

/** @param {string} scope */
export const nameFor = (scope) => `${BOOK} ${scope}`;

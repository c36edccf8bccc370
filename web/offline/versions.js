// The store for offline visits, in Cache Storage: files by their hashes, and a book of versions, each a list of files that
// belong together. A lock serialises writes to the book by pages and the service worker.

import { digest } from '../storage/digest.js';
import { seal, unseal } from '../storage/sealed_cache.js';
import { withinQuota } from '../storage/quota.js';

/** hash: SHA-256 of the bytes, in hexadecimal. @typedef {{ url: string, size: number, hash: string }} OfflineFile */
/** name: a hash of its files' hashes; build: the engine's. @typedef {{ name: string, build: string, files: OfflineFile[] }} Version */
/**
 * What to store for a page: the folder of the engine's files, lists of files with hashes, files, models.
 * @typedef {{ engine: string, lists: string[], files: string[], models: { url: string, version: string }[] }} Wanted
 */
/** The version of a page or a worker. since: milliseconds since 1970. @typedef {{ name: string, since: number }} Page */
/** versions: newest last; pages: by id. @typedef {{ wanted: Wanted | null, versions: Version[], pages: Record<string, Page> }} Book */

const BOOK = 'pyruntime-offline';
/** Headers of the transfer, not of the file. */
const TRANSFER_HEADERS = [
  'content-encoding', 'content-length', 'transfer-encoding', 'connection', 'keep-alive', 'set-cookie', 'vary', 'clear-site-data',
];
const MINUTE = 60_000;

export class Versions {
  /** @param {Cache} cache @param {string} scope */
  constructor(cache, scope) {
    this.cache = cache;
    this.lock = nameFor(scope);
    this.address = `${scope}?${BOOK}`;
  }

  /** The store of a service worker. @param {string} scope the worker's */
  static async open(scope) {
    return new Versions(await caches.open(nameFor(scope)), scope);
  }

  /** A damaged book counts as an empty one. @returns {Promise<Book>} */
  async read() {
    const found = await this.cache.match(this.address);
    const bytes = found && await unseal(found, this.address);
    return bytes ? JSON.parse(new TextDecoder().decode(bytes)) : { wanted: null, versions: [], pages: {} };
  }

  /**
   * Takes the lock, reads the book of versions, lets the action change it, and writes it back.
   * @param {(book: Book) => unknown} action edits the book in place @returns {Promise<Book>}
   */
  change(action) {
    return navigator.locks.request(this.lock, async () => {
      const book = await this.read();
      await action(book);
      const bytes = new TextEncoder().encode(JSON.stringify(book));
      await this.cache.put(this.address, new Response(bytes, { headers: { etag: await seal(this.address, bytes) } }));
      return book;
    });
  }

  /**
   * Runs an action that fetches or removes files; one page at a time.
   * @template T @param {() => Promise<T>} action @returns {Promise<T>}
   */
  inTurn(action) {
    return navigator.locks.request(`${this.lock} update`, action);
  }

  /** @param {OfflineFile} file */
  key({ url, hash }) {
    const key = new URL(url);
    key.searchParams.set(BOOK, hash);
    return key.href;
  }

  /** A stored file; null if it is missing or damaged. @param {OfflineFile} file @returns {Promise<Response | null>} */
  async find(file) {
    const found = await this.cache.match(this.key(file));
    if (!found) return null;
    const bytes = await found.arrayBuffer();
    return await digest(new Uint8Array(bytes)) === file.hash ? new Response(bytes, { headers: found.headers }) : null;
  }

  /** The server's headers of a file. @param {OfflineFile} file */
  async headers(file) {
    return (await this.cache.match(this.key(file)))?.headers ?? new Headers();
  }

  /** @param {OfflineFile} file @param {Uint8Array<ArrayBuffer>} bytes @param {Headers} received from the server */
  async put(file, bytes, received) {
    const headers = new Headers(received);
    for (const name of TRANSFER_HEADERS) headers.delete(name);
    await withinQuota(file.url, bytes.length, () => this.cache.put(this.key(file), new Response(bytes, { headers })));
  }

  /** Makes a version the newest. @param {Version} version @param {Wanted} wanted */
  add(version, wanted) {
    return this.change((book) => {
      book.wanted = wanted;
      book.versions = [...book.versions.filter(({ name }) => name !== version.name), version];
    });
  }

  /**
   * Removes versions that no page uses, except the newest, and their files. Does nothing while a page fetches, because its
   * files belong to no version yet. @param {string[]} alive ids of pages and workers @param {boolean} loose files of no version, too
   */
  tidy(alive, loose) {
    return navigator.locks.request(`${this.lock} update`, { ifAvailable: true }, (lock) => lock && this.change(async (book) => {
      const all = await this.cache.keys();
      const before = this.keys(book);
      const young = Object.entries(book.pages).filter(([, { since }]) => Date.now() - since < MINUTE); // may not be listed yet
      const pages = alive.map((id) => /** @type {[string, Page]} */ ([id, { name: versionOf(id, book)?.name ?? '', since: 0 }]));
      book.pages = Object.fromEntries([...pages.filter(([, { name }]) => name), ...young]);
      const used = new Set(Object.values(book.pages).map(({ name }) => name));
      book.versions = book.versions.filter(({ name }, i, { length }) => i === length - 1 || used.has(name));
      const after = this.keys(book);
      await Promise.all(all.map(({ url }) => (loose || before.has(url)) && !after.has(url) && this.cache.delete(url)));
    }));
  }

  /** Keys of the book and of all files. @param {Book} book */
  keys({ versions }) {
    return new Set([this.address, ...versions.flatMap(({ files }) => files.map((file) => this.key(file)))]);
  }
}

/**
 * Returns the version of a page or a worker. An unknown id belongs to a worker of the only page, or to a page opened
 * before the first version was stored. @param {string} id @param {Book} book
 */
export function versionOf(id, { pages, versions }) {
  const [name, ...others] = new Set((id in pages ? [pages[id]] : Object.values(pages)).map((page) => page.name));
  return versions.find((version) => version.name === name && !others.length) ?? versions.at(-1);
}

/** @param {string} scope */
export const nameFor = (scope) => `${BOOK} ${scope}`;

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
/** versions: the newest last; pages: of which version each page and worker is, by its id. @typedef {{ wanted: Wanted | null, versions: Version[], pages: Record<string, string> }} Book */

const BOOK = 'pyruntime-offline';
/** Headers that tell of the way here, not of the file. */
const OF_THE_WAY = ['content-encoding', 'content-length', 'transfer-encoding', 'connection', 'keep-alive', 'set-cookie'];

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

  /** Removes versions that no page is of, but for the newest, and files of none. @param {string[]} alive ids of pages and workers */
  tidy(alive) {
    return this.change(async (book) => {
      const pages = alive.map((id) => [id, versionOf(id, book)?.name]);
      book.pages = Object.fromEntries(pages.filter(([, name]) => name));
      const used = new Set(Object.values(book.pages));
      book.versions = book.versions.filter(({ name }, i, { length }) => i === length - 1 || used.has(name));
      const keys = new Set([this.place, ...book.versions.flatMap(({ files }) => files.map((file) => this.key(file)))]);
      await Promise.all((await this.cache.keys()).map(({ url }) => keys.has(url) || this.cache.delete(url)));
    });
  }
}

/**
 * That of a page or of a worker. One that is not known is a worker, of the page there is, or a page that was there before
 * anything was kept. @param {string} id @param {Book} book
 */
export function versionOf(id, { pages, versions }) {
  const [name, ...others] = id in pages ? [pages[id]] : new Set(Object.values(pages));
  return versions.find((version) => version.name === name && !others.length) ?? versions.at(-1);
}

/** @param {string} scope */
export const nameFor = (scope) => `${BOOK} ${scope}`;

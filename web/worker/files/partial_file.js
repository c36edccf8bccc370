// Reads parts of a file; at an address, by range requests (RFC 9110, section 14).

import { InvalidModel, LimitExceeded, PyRuntimeError } from '../../common/errors.js';
import { receiveParts } from './moving_file.js';
import { noResponse, request, sameVersion } from './resumable_fetch.js';

/** @import { FetchFile, Origin } from '../../common/protocol.js' */
/** @typedef {(offset: number, size: number) => Promise<Uint8Array>} Fetch */

const FIRST = 1 << 12, LARGEST = 1 << 20; // bytes of a request after a jump; sequential requests double it up to LARGEST
const SMALL = 1 << 20; // bytes; smaller files may be downloaded whole
const MAX_FETCHED = 1 << 26; // most bytes that are fetched of a file
const HINT = 'download the file, and inspect that';

export class PartialFile {
  /**
   * @param {number} size of the file @param {Fetch} fetch @param {{ offset: number, bytes: Uint8Array }[]} [parts] that were read
   */
  constructor(size, fetch, parts = []) {
    this.size = size;
    this.fetch = fetch;
    this.parts = parts;
    this.step = FIRST;
    this.end = 0;
    /** Bytes. */
    this.fetched = parts.reduce((sum, { bytes }) => sum + bytes.length, 0);
  }

  /**
   * Returns between `min` and `max` bytes from `offset` on, if they were read before.
   * @param {number} offset @param {number} min @param {number} [max]
   * @returns {Uint8Array | undefined}
   */
  peek(offset, min, max = min) {
    const found = this.parts.findLast((part) => part.offset <= offset && offset + min <= part.offset + part.bytes.length);
    return found?.bytes.subarray(offset - found.offset, offset - found.offset + max);
  }

  /**
   * Returns the bytes from `offset` on; fetches them, with some that follow, unless they were read before.
   * @param {number} offset @param {number} size
   */
  async get(offset, size) {
    const found = this.peek(offset, size);
    if (found) return found;
    if (offset + size > this.size) throw new InvalidModel(`the model is cut off at byte ${this.size}`);
    this.step = offset === this.end ? Math.min(2 * this.step, LARGEST) : FIRST;
    const length = Math.min(Math.max(size, this.step), this.size - offset);
    if (this.fetched + length > MAX_FETCHED) {
      throw new LimitExceeded(`${length} bytes would have to be fetched in addition to ${this.fetched}`, { hint: HINT });
    }
    const bytes = await this.fetch(offset, length);
    this.parts.push({ offset, bytes });
    this.fetched += bytes.length;
    this.end = offset + length;
    return bytes.subarray(0, size);
  }
}

/** @param {Origin} origin @param {AbortSignal} [signal] @returns {Promise<PartialFile>} */
export async function openPartialFile(origin, signal) {
  if ('url' in origin) return ofAddress(origin.url, signal, origin.fetch);
  const whole = 'bytes' in origin ? origin.bytes : null;
  if ('stream' in origin) {
    throw new InvalidModel('a stream cannot be read in parts', { hint: 'inspect its address, or `await new Response(stream).blob()`' });
  }
  if ('port' in origin) {
    const file = await receiveParts(origin, signal);
    return new PartialFile(file.size, async (offset, size) => file.read(offset, size));
  }
  const blob = 'blob' in origin ? origin.blob : 'handle' in origin ? await origin.handle.getFile() : new Blob();
  const read = async (/** @type {number} */ offset, /** @type {number} */ size) => (
    new Uint8Array(await blob.slice(offset, offset + size).arrayBuffer()));
  const file = new PartialFile(whole?.length ?? blob.size, read, whole ? [{ offset: 0, bytes: whole }] : []);
  file.fetched = 0;
  return file;
}

/** @param {string} url @param {AbortSignal} [signal] @param {FetchFile} [fetch] */
async function ofAddress(url, signal, fetch) {
  /** @template T @param {number} offset @param {number} size @param {(response: Response) => Promise<T>} take */
  const ask = async (offset, size, take) => {
    const once = async () => take(await requestPart(url, offset, size, signal, fetch));
    const retry = (/** @type {Error} */ error) => (error instanceof PyRuntimeError || signal?.aborted ? Promise.reject(error) : once());
    return once().catch(retry).catch((cause) => {
      throw cause instanceof PyRuntimeError ? cause : noResponse(url, cause);
    });
  };
  return ask(0, FIRST, async (first) => {
    if (first.status === 416) return new PartialFile(0, async () => new Uint8Array()); // an empty file has no ranges
    const size = await sizeOf(url, first, signal, fetch);
    if (first.status !== 206 && !(size <= SMALL)) {
      first.body?.cancel().catch(() => {});
      const text = size < Infinity ? `${size} bytes` : 'a file of unknown size';
      throw new InvalidModel(`${url}: its server ignores range requests, ${text} would have to be fetched`, { hint: HINT });
    }
    const bytes = new Uint8Array(await first.arrayBuffer());
    const read = (/** @type {number} */ offset, /** @type {number} */ length) => ask(offset, length, async (response) => {
      const part = new Uint8Array(await (response.status === 206 ? response.arrayBuffer() : new ArrayBuffer(0)));
      const isSame = part.length === length && rangeTotal(response) === rangeTotal(first) && sameVersion(response, first);
      if (!isSame) throw new InvalidModel(`${url} has changed while it was read`);
      return part;
    });
    return new PartialFile(size, read, [{ offset: 0, bytes }]);
  });
}

/** @param {string} url @param {number} offset @param {number} size @param {AbortSignal} [signal] @param {FetchFile} [fetch] */
async function requestPart(url, offset, size, signal, fetch) {
  const response = await request(url, { headers: { range: `bytes=${offset}-${offset + size - 1}` } }, signal, fetch);
  const start = /^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '')?.[1]; // other origins may hide the header
  if (response.status === 206 && Number(start ?? offset) !== offset) {
    throw new InvalidModel(`${url}: its server sends a range that was not requested`, { hint: HINT });
  }
  if (response.status === 416 && offset) throw new InvalidModel(`${url} has changed while it was read`);
  return response;
}

/** The size of the file according to a response with a part; undefined if the server hides it. @param {Response} response */
const rangeTotal = ({ headers }) => /\/(\d+)$/.exec(headers.get('content-range') ?? '')?.[1];

/**
 * The file's size. If it is unknown: Infinity, or an error if the server sends parts.
 * @param {string} url @param {Response} first @param {AbortSignal} [signal] @param {FetchFile} [fetch]
 */
async function sizeOf(url, first, signal, fetch = globalThis.fetch) {
  const total = rangeTotal(first);
  if (total) return Number(total);
  const whole = { method: 'HEAD', signal, headers: { range: 'bytes=0-' } }; // a range is not compressed, which other origins would hide
  const { ok, headers } = first.status === 206 ? await fetch(url, whole).catch(() => Response.error()) : first;
  const length = headers.get('content-encoding') ? null : headers.get('content-length');
  if (first.status === 206 && (!ok || length === null)) {
    throw new InvalidModel(`${url}: its server does not report the file's size`, { hint: HINT });
  }
  return length === null ? Infinity : Number(length);
}

// A file of which parts are read where it lies: of an address by range requests (RFC 9110, section 14).

import { InvalidModel, LimitExceeded, PyRuntimeError } from '../../common/errors.js';
import { answered, sameVersion } from './resumable_fetch.js';

/** @typedef {import('../../common/protocol.js').Origin} Origin */
/** @typedef {(offset: number, size: number) => Promise<Uint8Array>} Fetch */

const FIRST = 1 << 12, LARGEST = 1 << 20; // bytes of a request: the first after a jump, and where they follow each other
const SMALL = 1 << 20; // bytes of a file that may come as a whole
const MOST = 1 << 26; // bytes that are fetched of a file, whatever is asked for
const HINT = 'download the file, and inspect that';

export class PartialFile {
  /** @param {number} size of the file @param {Fetch} fetch @param {{ offset: number, bytes: Uint8Array }[]} [parts] that are there */
  constructor(size, fetch, parts = []) {
    this.size = size;
    this.fetch = fetch;
    this.parts = parts;
    this.step = FIRST;
    this.end = 0;
    /** Bytes that came. */
    this.fetched = parts.reduce((sum, { bytes }) => sum + bytes.length, 0);
  }

  /** Bytes from there on, at least and at most so many, if they came. @param {number} offset @param {number} least @param {number} [most] @returns {Uint8Array | undefined} */
  peek(offset, least, most = least) {
    const found = this.parts.findLast((part) => part.offset <= offset && offset + least <= part.offset + part.bytes.length);
    return found?.bytes.subarray(offset - found.offset, offset - found.offset + most);
  }

  /** The same, fetched if need be, with what is behind them. @param {number} offset @param {number} size */
  async get(offset, size) {
    const found = this.peek(offset, size);
    if (found) return found;
    if (offset + size > this.size) throw new InvalidModel(`the model is cut off at byte ${this.size}`);
    this.step = offset === this.end ? Math.min(2 * this.step, LARGEST) : FIRST;
    const wanted = Math.min(Math.max(size, this.step), this.size - offset);
    if (this.fetched + wanted > MOST) throw new LimitExceeded(`${wanted} bytes more than the ${this.fetched} that came would have to be fetched`, { hint: HINT });
    const bytes = await this.fetch(offset, wanted);
    this.parts.push({ offset, bytes });
    this.fetched += bytes.length;
    this.end = offset + wanted;
    return bytes.subarray(0, size);
  }
}

/** @param {Origin} origin @param {AbortSignal} [signal] @returns {Promise<PartialFile>} */
export async function openPartialFile(origin, signal) {
  if ('url' in origin) return ofAddress(origin.url, signal);
  const whole = 'bytes' in origin ? origin.bytes : null;
  if ('stream' in origin) throw new InvalidModel('a stream cannot be read in parts', { hint: 'inspect its address, or `await new Response(stream).blob()`' });
  const blob = 'blob' in origin ? origin.blob : 'handle' in origin ? await origin.handle.getFile() : new Blob();
  const read = async (/** @type {number} */ offset, /** @type {number} */ size) => new Uint8Array(await blob.slice(offset, offset + size).arrayBuffer());
  const made = new PartialFile(whole?.length ?? blob.size, read, whole ? [{ offset: 0, bytes: whole }] : []);
  made.fetched = 0;
  return made;
}

/** @param {string} url @param {AbortSignal} [signal] */
async function ofAddress(url, signal) {
  /** @template T @param {number} offset @param {number} size @param {(response: Response) => Promise<T>} take */
  const ask = async (offset, size, take) => {
    const once = async () => take(await partOf(url, offset, size, signal));
    return once().catch((error) => (error instanceof PyRuntimeError || signal?.aborted ? Promise.reject(error) : once())).catch((cause) => {
      throw cause instanceof PyRuntimeError ? cause : new InvalidModel(`cannot fetch ${url}: ${cause.message}`, { cause });
    });
  };
  return ask(0, FIRST, async (first) => {
    if (first.status === 416) return new PartialFile(0, async () => new Uint8Array()); // of an empty file there is no part
    const size = await sizeOf(url, first, signal);
    if (first.status !== 206 && !(size <= SMALL)) {
      first.body?.cancel().catch(() => {});
      const text = size < Infinity ? `${size} bytes` : 'a file of unknown size';
      throw new InvalidModel(`${url}: its server sends no parts, ${text} would have to be fetched`, { hint: HINT });
    }
    const bytes = new Uint8Array(await first.arrayBuffer());
    return new PartialFile(size, (offset, wanted) => ask(offset, wanted, async (response) => {
      const part = new Uint8Array(await (response.status === 206 ? response.arrayBuffer() : new ArrayBuffer(0)));
      if (part.length !== wanted || whole(response) !== whole(first) || !sameVersion(response, first)) throw new InvalidModel(`${url} has changed while it was read`);
      return part;
    }), [{ offset: 0, bytes }]);
  });
}

/** The answer of a server that is asked for a part. @param {string} url @param {number} offset @param {number} size @param {AbortSignal} [signal] */
async function partOf(url, offset, size, signal) {
  const response = await answered(url, { headers: { range: `bytes=${offset}-${offset + size - 1}` } }, signal);
  const start = /^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '')?.[1]; // if pages of this origin are told
  if (response.status === 206 && Number(start ?? offset) !== offset) throw new InvalidModel(`${url}: its server sends another part than was asked for`, { hint: HINT });
  if (response.status === 416 && offset) throw new InvalidModel(`${url} has changed while it was read`);
  return response;
}

/** The size that a part tells of its file, if pages of this origin are told. @param {Response} response */
const whole = ({ headers }) => /\/(\d+)$/.exec(headers.get('content-range') ?? '')?.[1];

/** Of the file; Infinity if nobody tells, where it comes as a whole. @param {string} url @param {Response} first @param {AbortSignal} [signal] */
async function sizeOf(url, first, signal) {
  const told = whole(first);
  if (told) return Number(told);
  const { ok, headers } = first.status === 206 ? await fetch(url, { method: 'HEAD', signal }).catch(() => Response.error()) : first;
  const length = headers.get('content-encoding') ? null : headers.get('content-length');
  if (first.status === 206 && (!ok || length === null)) throw new InvalidModel(`${url}: its server does not tell the file's size`, { hint: HINT });
  return length === null ? Infinity : Number(length);
}

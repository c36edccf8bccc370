// Downloads from unreliable networks and servers: retries while a server is busy; after a broken connection or a silence,
// resumes after the bytes that arrived (RFC 9110, section 14; docs/design/storage.md#resumable-downloads).

import { InvalidModel } from '../../common/errors.js';

/** @typedef {import('../../common/protocol.js').FetchFile} Fetch */

/**
 * Milliseconds. silence: time without a byte of any file that ends a connection; pauses: before each retry, reset when
 * bytes arrive; longest: the longest wait that a server may request.
 */
export const patience = { silence: 30_000, pauses: [0, 1000, 2000, 4000], longest: 60_000 };

const BUSY = [408, 425, 429, 500, 502, 503, 504];
const VERSION = ['etag', 'last-modified'];
const CHECKS = 30; // checks during a silence, because a blocked event loop is not a silent connection

/** The download cannot be resumed: it must begin again. */
export class Restart extends Error {}

/**
 * A successful response, whose body resumes after broken connections, or fails with a `Restart`.
 * Errors besides those of `fetch`: InvalidModel, which names the address.
 * @param {string} url @param {RequestInit} init @param {AbortSignal} [signal] cancels it @param {Fetch} [fetch]
 */
export async function resumableFetch(url, init, signal, fetch) {
  const first = await request(url, init, signal, fetch);
  return first.body ? new Response(resumingBody(url, first, first.body, signal, fetch), { headers: first.headers }) : first;
}

/** The error for an address that gave no response. @param {string} url @param {unknown} cause */
export function noResponse(url, cause) {
  const here = globalThis.location; // none in Node.js
  const hint = here && new URL(url, here.href).origin !== here.origin ? "its server does not answer, or does not allow this page's origin (CORS)" : "its server does not answer, or a Content-Security-Policy forbids it (connect-src)";
  return new InvalidModel(`cannot fetch ${url}: ${/** @type {Error} */ (cause).message}`, { hint, cause });
}

/**
 * The response of a server; retries while the server is busy. 416 (an empty range) is a response.
 * @param {string} url @param {RequestInit} init @param {AbortSignal} [signal] @param {Fetch} [fetch]
 */
export async function request(url, init, signal, fetch = globalThis.fetch) {
  for (let tries = 0;; tries++) {
    const response = await unlessSilent(fetch(url, { signal, ...init }));
    const { ok, status, statusText } = response;
    if (ok || status === 416) return response;
    const pause = pauseOf(response, tries);
    const hint = BUSY.includes(status) ? 'its server is busy or out of order: try again later' : 'check the address';
    if (pause === undefined) throw new InvalidModel(`cannot fetch ${url}: HTTP ${status} ${statusText}`.trimEnd(), { hint });
    response.body?.cancel().catch(() => {});
    await wait(pause, signal);
  }
}

/** Milliseconds until a retry; undefined: no retry. @param {Response} response @param {number} tries before */
function pauseOf({ status, headers }, tries) {
  const asked = 1000 * (Number(headers.get('retry-after')) || 0); // a date is ignored
  const own = patience.pauses[tries];
  return BUSY.includes(status) && own !== undefined && asked <= patience.longest ? Math.max(asked, own) : undefined;
}

/**
 * @param {string} url @param {Response} first @param {ReadableStream<Uint8Array>} body of it @param {AbortSignal} [signal]
 * @param {Fetch} [fetch] @returns {ReadableStream<Uint8Array>}
 */
function resumingBody(url, first, body, signal, fetch) {
  let reader = body.getReader();
  let loaded = 0;
  let tries = 0;
  /** @param {unknown} error of the connection @returns {Promise<typeof reader>} of the remaining bytes */
  const reconnected = async (error) => {
    reader.cancel().catch(() => {});
    const pause = patience.pauses[tries++];
    const why = `${/** @type {Error} */ (error).message}, after ${loaded} bytes`;
    if (signal?.aborted || pause === undefined) throw new Error(why, { cause: error });
    await wait(pause, signal);
    return requestRest(url, first, loaded, signal, fetch).catch((cause) => {
      if (cause instanceof InvalidModel) throw cause;
      if (cause instanceof Restart) throw new Restart(why, { cause: error });
      return reconnected(cause);
    });
  };
  /** @returns {Promise<Uint8Array | undefined>} */
  const next = () => unlessSilent(reader.read()).then(({ value }) => value, async (error) => {
    reader = await reconnected(error);
    return next();
  });
  return new ReadableStream({
    async pull(stream) {
      const bytes = await next();
      if (!bytes) return stream.close();
      tries = 0;
      loaded += bytes.length;
      stream.enqueue(bytes);
    },
    cancel: (reason) => reader.cancel(reason),
  }, { highWaterMark: 0 });
}

/**
 * A reader of the file's remaining bytes. Throws if they cannot be read, or are of another version. Servers may compress the whole and
 * not its parts, with another ETag for each. A response of another origin hides that: then the download begins again.
 * @param {string} url @param {Response} first @param {number} loaded @param {AbortSignal} [signal]
 * @param {Fetch} [fetch]
 */
async function requestRest(url, first, loaded, signal, fetch) {
  const hasVersion = !first.headers.has('content-encoding') && VERSION.some((name) => first.headers.has(name));
  if (!hasVersion) throw new Restart();
  const response = await request(url, { headers: { range: `bytes=${loaded}-` }, cache: 'no-store' }, signal, fetch);
  const range = response.headers.get('content-range') ?? ''; // other origins may hide it
  const [, start = loaded, size] = /^bytes (\d+)-\d+\/(\d+)$/.exec(range) ?? [];
  const isHidden = first.type === 'cors'; // whether it was compressed
  const length = isHidden ? null : first.headers.get('content-length');
  const changed = response.status === 416 || !sameVersion(response, first) || length && size && size !== length;
  if (!changed && response.body && response.status === 206 && Number(start) === loaded) return response.body.getReader();
  response.body?.cancel().catch(() => {});
  if (changed && !isHidden) throw new InvalidModel(`${url} has changed while it was fetched`, { hint: 'create the session again' });
  throw new Restart();
}

/** Whether the version headers that both responses have are equal. @param {Response} a @param {Response} b */
export const sameVersion = (a, b) => VERSION.every((name) => {
  const [one, other] = [a.headers.get(name), b.headers.get(name)];
  return (one ?? other) === (other ?? one);
});

/** Number of responses and pieces that arrived, of all files: a file that waits for a connection is not silent while others arrive. */
let arrived = 0;

/** The promise's value, or an error after a silence. @template T @param {Promise<T>} coming @returns {Promise<T>} */
async function unlessSilent(coming) {
  let before = arrived;
  let checks = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  /** @type {Promise<never>} */
  const silence = new Promise((_, reject) => {
    timer = setInterval(() => {
      checks = before === arrived ? checks + 1 : 0;
      before = arrived;
      if (checks >= CHECKS) reject(new Error(`no bytes arrived for ${patience.silence / 1000} s`));
    }, patience.silence / CHECKS);
  });
  try {
    const value = await Promise.race([coming, silence]);
    arrived++;
    return value;
  } finally {
    clearInterval(timer);
  }
}

/** @param {number} milliseconds @param {AbortSignal} [signal] @returns {Promise<void>} */
function wait(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

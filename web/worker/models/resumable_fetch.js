// Files over networks and from servers that falter: one that is busy is asked again; where a connection breaks, or nothing
// comes any more, the next one goes on behind the bytes that came (RFC 9110, section 14).

import { InvalidModel } from '../../common/errors.js';

/** Milliseconds. silence: without a byte of any file; pauses: before a file is asked for again, while nothing of it comes; longest: that a server may have us wait. */
export const patience = { silence: 30_000, pauses: [0, 1000, 2000, 4000], longest: 60_000 };

const BUSY = [408, 425, 429, 500, 502, 503, 504];
const VERSION = ['etag', 'last-modified'];
const LOOKS = 30; // at whether something came, in a silence: what holds up the event loop is none

/** What came of the file cannot be gone on with: it is to be fetched from its beginning. */
export class Restart extends Error {}

/**
 * The answer of a server, whose status is good; its body goes on where a connection breaks, or ends with a `Restart`.
 * Errors besides those of `fetch`: InvalidModel, which names the address.
 * @param {string} url @param {RequestInit} init @param {AbortSignal} [signal] that it is wanted no more
 */
export async function resumableFetch(url, init, signal) {
  const first = await answered(url, init, signal);
  return first.body ? new Response(lasting(url, first, first.body, signal), { headers: first.headers }) : first;
}

/** The answer of a server, which is asked again while it is busy; that a range is empty is one. @param {string} url @param {RequestInit} init @param {AbortSignal} [signal] */
export async function answered(url, init, signal) {
  for (let tries = 0;; tries++) {
    const response = await patiently(fetch(url, { signal, ...init }));
    const { ok, status, statusText } = response;
    if (ok || status === 416) return response;
    const pause = pauseOf(response, tries);
    const hint = BUSY.includes(status) ? 'its server is busy or out of order: try again later' : 'check the address';
    if (pause === undefined) throw new InvalidModel(`cannot fetch ${url}: HTTP ${status} ${statusText}`.trimEnd(), { hint });
    response.body?.cancel().catch(() => {});
    await wait(pause, signal);
  }
}

/** Milliseconds until a server may be asked again; undefined: never. @param {Response} response @param {number} tries before */
function pauseOf({ status, headers }, tries) {
  const asked = 1000 * (Number(headers.get('retry-after')) || 0); // a date is passed over
  const own = patience.pauses[tries];
  return BUSY.includes(status) && own !== undefined && asked <= patience.longest ? Math.max(asked, own) : undefined;
}

/** @param {string} url @param {Response} first @param {ReadableStream<Uint8Array>} body of it @param {AbortSignal} [signal] @returns {ReadableStream<Uint8Array>} */
function lasting(url, first, body, signal) {
  let reader = body.getReader();
  let loaded = 0;
  let tries = 0;
  /** @param {any} error why there is nothing more @returns {Promise<typeof reader>} what there is behind */
  const reconnected = async (error) => {
    reader.cancel().catch(() => {});
    const pause = patience.pauses[tries++];
    const why = `${error.message}, after ${loaded} bytes`;
    if (signal?.aborted || pause === undefined) throw new Error(why, { cause: error });
    await wait(pause, signal);
    return behind(url, first, loaded, signal).catch((cause) => {
      if (cause instanceof InvalidModel) throw cause;
      if (cause instanceof Restart) throw new Restart(why, { cause: error });
      return reconnected(cause);
    });
  };
  /** @returns {Promise<Uint8Array | undefined>} */
  const next = () => patiently(reader.read()).then(({ value }) => value, async (error) => {
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

/** What a server has behind the first bytes, if it is of the same version. @param {string} url @param {Response} first @param {number} loaded @param {AbortSignal} [signal] */
async function behind(url, first, loaded, signal) {
  const told = !first.headers.has('content-encoding') && VERSION.some((name) => first.headers.has(name));
  if (!told) throw new Restart();
  const response = await answered(url, { headers: { range: `bytes=${loaded}-` }, cache: 'no-store' }, signal);
  const [, start = loaded, size] = /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get('content-range') ?? '') ?? []; // if pages of this origin are told
  const length = first.headers.get('content-length');
  const changed = response.status === 416 || !sameVersion(response, first) || length && size && size !== length;
  if (!changed && response.body && response.status === 206 && Number(start) === loaded) return response.body.getReader();
  response.body?.cancel().catch(() => {});
  if (changed) throw new InvalidModel(`${url} has changed while it was fetched`, { hint: 'create the session again' });
  throw new Restart();
}

/** Whether the headers that tell a file's version agree, where both have them. @param {Response} a @param {Response} b */
export const sameVersion = (a, b) => VERSION.every((name) => (a.headers.get(name) ?? b.headers.get(name)) === (b.headers.get(name) ?? a.headers.get(name)));

/** Answers and pieces that came, of all files: those that wait for a connection do so while others come. */
let heard = 0;

/** What comes, or an error after a silence. @template T @param {Promise<T>} coming @returns {Promise<T>} */
async function patiently(coming) {
  let before = heard;
  let looks = 0;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  /** @type {Promise<never>} */
  const silence = new Promise((_, reject) => {
    timer = setInterval(() => {
      looks = before === heard ? looks + 1 : 0;
      before = heard;
      if (looks >= LOOKS) reject(new Error(`nothing came for ${patience.silence / 1000} s`));
    }, patience.silence / LOOKS);
  });
  try {
    const came = await Promise.race([coming, silence]);
    heard++;
    return came;
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

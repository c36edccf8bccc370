// The state of a page in its address, after the #: compressed JSON, so that a link shows the same to others.

/** @param {ReadableStream<any>} stream */
const bytesOf = async (stream) => new Uint8Array(await new Response(stream).arrayBuffer());

const DELAY = 300; // ms after the latest change

/** What waits to be written. @type {{ state: unknown } | null} */
let next = null;
let timer = 0;
/** @type {Promise<void>} */
let written = Promise.resolve();

/** Puts the state into the address soon. @param {unknown} state null: none */
export function writeState(state) {
  next = { state };
  clearTimeout(timer);
  timer = setTimeout(flushState, DELAY);
}

/** Resolves when the address has the latest state. */
export function flushState() {
  clearTimeout(timer);
  if (next) {
    const { state } = next;
    next = null;
    written = written.then(() => write(state));
  }
  return written;
}

/** @param {unknown} state */
async function write(state) {
  if (state === null) return history.replaceState(null, '', location.pathname + location.search);
  const packed = await bytesOf(new Blob([JSON.stringify(state)]).stream().pipeThrough(new CompressionStream('deflate-raw')));
  const text = btoa(String.fromCharCode(...packed)).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
  history.replaceState(null, '', `#${text}`);
}

/** The state in the address, or null if there is none, or none that can be read. @returns {Promise<any>} */
export async function readState() {
  const text = location.hash.slice(1).replaceAll('-', '+').replaceAll('_', '/');
  if (!text) return null;
  try {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(await bytesOf(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw')))));
  } catch {
    return null;
  }
}

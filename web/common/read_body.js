// The body of an answer, with progress.

/** @typedef {(loaded: number, total: number) => void} OnBytes total 0 where the server does not tell */

/** @param {Response} response @param {OnBytes} progress @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function readBody(response, progress) {
  if (!response.body) return new Uint8Array(await response.arrayBuffer());
  const encoded = response.headers.get('content-encoding');
  const total = encoded ? 0 : Number(response.headers.get('content-length') ?? 0);
  return collect(response.body.getReader(), total, throttle(progress));
}

/**
 * Into one buffer of the announced size; a wrong announcement only costs a copy.
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader @param {number} total @param {OnBytes} progress
 */
async function collect(reader, total, progress) {
  let bytes = new Uint8Array(total || 1 << 16);
  let loaded = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (loaded + value.length > bytes.length) {
      const larger = new Uint8Array(Math.max(loaded + value.length, bytes.length * 2));
      larger.set(bytes.subarray(0, loaded));
      bytes = larger;
    }
    bytes.set(value, loaded);
    loaded += value.length;
    progress(loaded, total);
  }
  progress(loaded, loaded);
  return bytes.subarray(0, loaded);
}

/** At most some thirty calls a second, and always the last one. @param {OnBytes} progress @returns {OnBytes} */
function throttle(progress) {
  let last = 0;
  return (loaded, total) => {
    const now = performance.now();
    if (now - last < 33 && loaded !== total) return;
    last = now;
    progress(loaded, total);
  };
}

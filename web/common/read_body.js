// Reads the body of a response and reports progress.

/** total: 0 if unknown. @typedef {(loaded: number, total: number) => void} OnBytes */

/** @param {Response} response @param {OnBytes} progress @returns {Promise<Uint8Array<ArrayBuffer>>} */
export async function readBody(response, progress) {
  if (!response.body) return new Uint8Array(await response.arrayBuffer());
  let bytes = new Uint8Array(sizeOf(response) || 1 << 16); // a wrong size only costs a copy
  let loaded = 0;
  await eachChunk(response, progress, (chunk) => {
    if (loaded + chunk.length > bytes.length) {
      const larger = new Uint8Array(Math.max(loaded + chunk.length, bytes.length * 2));
      larger.set(bytes.subarray(0, loaded));
      bytes = larger;
    }
    bytes.set(chunk, loaded);
    loaded += chunk.length;
  });
  return bytes.subarray(0, loaded);
}

/**
 * Takes the body in chunks as they arrive.
 * @param {Response} response with a body @param {OnBytes} progress @param {(bytes: Uint8Array) => void} take
 */
export async function eachChunk(response, progress, take) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const total = sizeOf(response);
  const report = throttle(progress);
  let loaded = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      take(value);
      loaded += value.length;
      report(loaded, loaded > total ? 0 : total);
    }
  } catch (error) {
    reader.cancel().catch(() => {}); // ends the download
    throw error;
  }
  report(loaded, loaded);
}

/**
 * The size that the server reports; 0 if it reports none or the body is compressed. Responses of other origins may hide that they are:
 * then it is too small.
 * @param {Response} response
 */
export function sizeOf({ headers }) {
  return headers.get('content-encoding') ? 0 : Number(headers.get('content-length') ?? 0);
}

/** Calls back at most 30 times a second, and always at the end. @param {OnBytes} progress @returns {OnBytes} */
function throttle(progress) {
  let last = 0;
  return (loaded, total) => {
    const now = performance.now();
    if (now - last < 33 && loaded !== total) return;
    last = now;
    progress(loaded, total);
  };
}

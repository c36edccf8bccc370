// The executor in a separate worker without Python.

/** @typedef {{ header: string, blob: number[], model: number[] }} Given a Program as pyruntime.browser gives it, and its model */

/** @param {Given} program @param {number} runs @returns {Promise<{ median: number, python: number }>} milliseconds, calls of Python */
export function overhead(program, runs) {
  const worker = new Worker('/overhead_worker.js', { type: 'module' });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data));
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage({ program, runs });
  });
}

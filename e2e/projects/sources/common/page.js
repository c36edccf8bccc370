// The page: its own sums, and those of its worker, as JSON in an attribute of the document.

import { sums } from './check.js';

const inWorker = () => new Promise((resolve) => {
  const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }) => resolve(data);
  worker.onerror = ({ message }) => resolve({ pyruntime: `the worker failed: ${message}`, 'onnxruntime-web': '' });
});

export async function check() {
  const found = { page: await sums(), worker: await inWorker() };
  document.documentElement.dataset.sums = JSON.stringify(found);
}

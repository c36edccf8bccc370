// A page that works without a network: its text, the engine, a model.

import * as ort from './dist/ort.mjs';
import * as offline from './dist/offline.mjs';

const WANTED = { files: ['./', 'app.js'], models: ['affine.onnx'] };

globalThis.edition = 1; // tests write another one here
globalThis.ort = ort;
globalThis.offline = offline;
globalThis.install = async (more = {}) => {
  const told = [];
  const status = await offline.install({ ...WANTED, ...more, onProgress: (progress) => told.push(progress) });
  return { status, told };
};
/** What the model says of 0 … 7, as two rows. */
globalThis.read = async (model, options) => {
  const session = await ort.InferenceSession.create(model, options);
  const { y } = await session.run({ x: new ort.Tensor('float32', Float32Array.from([0, 1, 2, 3, 4, 5, 6, 7]), [2, 4]) });
  await session.release();
  return Array.from(y.data);
};

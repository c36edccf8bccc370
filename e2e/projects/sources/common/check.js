// What each project does, in its page and in its worker: one sum by this package and by onnxruntime-web.

import * as pyruntime from 'pyruntime';
import * as peer from './peer.js';
import { MODEL } from './model.js';
import { options, paths } from './settings.js';

const LIBRARIES = { pyruntime, 'onnxruntime-web': peer };

async function sum(name) {
  const ort = LIBRARIES[name];
  if (name !== 'pyruntime') ort.env.wasm.numThreads = 1;
  if (paths[name]) ort.env.wasm.wasmPaths = paths[name];
  const session = await ort.InferenceSession.create(MODEL, options(name));
  const tensor = (...data) => new ort.Tensor('float32', data, [2, 3]);
  const { c } = await session.run({ a: tensor(1, 2, 3, 4, 5, 6), b: tensor(1, 1, 1, 1, 1, 1) });
  await session.release();
  return c.data.join();
}

/** The sums, or the errors, by library. */
export async function sums() {
  const found = {};
  for (const name of Object.keys(LIBRARIES)) found[name] = await sum(name).catch((error) => `${error.name}: ${error.message}`);
  return found;
}

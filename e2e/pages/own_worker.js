// A worker of a page: a classic one has the package by importScripts(), a module (own_worker.mjs) by import. Answers each
// model that it is sent with 1 … 6 plus ones and the engine's threads, or with the error.

if (!globalThis.ort) importScripts('/dist/ort.js');

async function add(model) {
  const session = await ort.InferenceSession.create(model, { intraOpNumThreads: 2 });
  const tensor = (...data) => new ort.Tensor('float32', data, [2, 3]);
  const { c } = await session.run({ a: tensor(1, 2, 3, 4, 5, 6), b: tensor(1, 1, 1, 1, 1, 1) });
  const { threads } = await ort.stats();
  await session.release();
  return [c.data.join(), threads];
}

addEventListener('message', ({ data, source }) => {
  const told = (error) => [error instanceof ort.SessionFailed, error.message];
  add(data).catch(told).then((found) => (source ?? globalThis).postMessage(found));
});

// Our trainer.

/** @import { Net, Trainer } from './net.js' */

/** @param {Net} net @returns {Promise<Trainer>} */
export async function ours({ info, batches }) {
  const ort = await import('pyruntime');
  ort.env.wasm.numThreads = navigator.hardwareConcurrency;
  const session = await ort.TrainingSession.create(info.model, { loss: info.loss, optimizer: { adam: { rate: info.rate } }, executionProviders: ['wasm'] });
  const inference = await ort.InferenceSession.create(info.model, { executionProviders: ['wasm'] });
  const feeds = batches.map((batch) => Object.fromEntries(Object.entries(batch).map(([name, { type, dims, data }]) => [name, new ort.Tensor(type, /** @type {any} */ (data), dims)])));
  return {
    step: async (n) => (await session.step(feeds[n])).loss,
    async forward(n) {
      const { target, ...inputs } = feeds[n];
      await inference.run(inputs);
    },
    memory: () => session.memory(),
    async release() {
      await session.release();
      await inference.release();
    },
  };
}

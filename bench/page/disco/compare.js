// The network of disco's task "titanic", trained by examples/disco and by disco's own trainer.

/** @typedef {{ x: number[], y: number }[]} Rows */
const example = await import(/** @type {any} */ ('/example/titanic.js'));

/** @type {{ parts: Rows[], held: Rows }} */
const data = await example.passengers(2);
const { parts, held } = data;

/** losses: of each epoch of the first client; steps: a second @typedef {{ accuracy: number, losses: number[], steps: number }} Result */
/** @typedef {{ client: number, epoch: number, loss: number }} Epoch */

/** @param {(tell: (done: Epoch) => void) => Promise<void>} work @param {() => Promise<number>} accuracyAfter @returns {Promise<Result>} */
async function measured(work, accuracyAfter) {
  /** @type {Epoch[]} */
  const epochs = [];
  const begin = performance.now();
  await work((done) => epochs.push(done));
  const seconds = (performance.now() - begin) / 1000;
  const count = parts.reduce((sum, rows) => sum + Math.ceil(rows.length / example.TASK.batchSize), 0) * example.TASK.epochs;
  const losses = epochs.filter(({ client }) => client === 0).map(({ loss }) => loss);
  return { accuracy: await accuracyAfter(), losses, steps: count / seconds };
}

async function ours() {
  const ort = await import(/** @type {any} */ ('/pyruntime/ort.mjs'));
  const sessions = await example.open(ort, parts.length);
  return measured((tell) => example.train(ort, sessions, data, tell), () => example.accuracy(ort, sessions[0], held));
}

/** @param {string} backend @param {number[][]} weights */
async function disco(backend, weights) {
  const made = await import(/** @type {any} */ ('/disco.js'));
  await made.use(backend);
  const clients = await made.open(weights, parts.length);
  return measured((tell) => made.train(clients, data, tell), () => made.accuracy(clients[0], held));
}

Object.assign(globalThis, { bench: { ours, disco } });

export {};

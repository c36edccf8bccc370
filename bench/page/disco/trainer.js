// disco's own trainer on its task "titanic", in a page: clients as in examples/disco, and their averages.

import * as disco from '@epfml/discojs-node';
import * as wasm from '@tensorflow/tfjs-backend-wasm';

const { tf, aggregation, data, defaultTasks, TrainingSchemes } = disco;
const given = defaultTasks.titanic.getTask();
const ROUND = 36; // steps: two epochs of 18 batches
// As disco's repository had the task in 2024. The one on npm is older: it also reads PassengerId, and trains by RMSprop.
const modelCompileData = { ...given.trainingInformation.modelCompileData, optimizer: 'adam' };
const task = { ...given, trainingInformation: { ...given.trainingInformation, epochs: 10, roundDuration: ROUND, modelCompileData } };
const logger = { success() {}, error() {} };
/** @typedef {{ x: number[], y: number }[]} Rows */
/** Clients of a round that wait for the others. @typedef {{ weights: any, done: (mean: any) => void }[]} Waiting */

/** Sends its weights, and receives their mean once all clients of the page have sent theirs. */
class Client extends disco.Client {
  /** @param {any} model @param {Waiting} waiting @param {number} count of all clients */
  constructor(model, waiting, count) {
    super(new URL(location.href), task);
    this.model = model;
    this.waiting = waiting;
    this.count = count;
  }

  async connect() {}
  async onTrainEndCommunication() {}
  async getLatestModel() { return this.model; }

  /** @param {any} weights */
  onRoundEndCommunication(weights) {
    return new Promise((done) => {
      this.waiting.push({ weights, done });
      if (this.waiting.length < this.count) return;
      const given = this.waiting.splice(0);
      const mean = aggregation.avg(given.map((one) => one.weights));
      for (const one of given) one.done(mean);
    });
  }
}

function network() {
  const model = tf.sequential();
  [124, 64, 32].forEach((units, n) => model.add(tf.layers.dense({ units, activation: 'relu', ...(n ? {} : { inputShape: [5] }) })));
  model.add(tf.layers.dense({ units: 1, activation: 'sigmoid' }));
  return model;
}

/** @param {string} backend */
export async function use(backend) {
  wasm.setWasmPaths('/tfjs-wasm/');
  if (!(await tf.setBackend(backend))) throw new Error(`no backend ${backend}`);
}

/** @param {number[][]} weights to begin with @param {number} count @returns {Promise<Client[]>} */
export async function open(weights, count) {
  /** @type {Waiting} */
  const waiting = [];
  return Promise.all(Array.from({ length: count }, async () => {
    const model = network();
    model.setWeights(model.getWeights().map((/** @type {any} */ w, /** @type {number} */ n) => tf.tensor(weights[n], w.shape)));
    return new Client(model, waiting, count);
  }));
}

/** @param {Client[]} clients @param {{ parts: Rows[], held: Rows }} all @param {(done: { client: number, epoch: number, loss: number }) => void} tell */
export async function train(clients, { parts, held }, tell) {
  await Promise.all(clients.map(async (client, n) => {
    const made = new disco.Disco(task, { client, logger, scheme: TrainingSchemes.FEDERATED });
    const onEpochEnd = (/** @type {number} */ epoch, /** @type {any} */ { loss }) => tell({ client: n, epoch: epoch + 1, loss });
    (await made.trainer).trainerLogger = { onEpochEnd, error() {} };
    await made.fit({ train: await table(parts[n]), validation: await table(held) });
  }));
}

/** @param {Rows} rows */
const table = (rows) => data.TabularData.init(tf.data.array(rows.map(({ x, y }) => ({ xs: x, ys: [y] }))), task, rows.length);

/** @param {Client} client @param {Rows} rows */
export async function accuracy({ model }, rows) {
  const found = await model.predict(tf.tensor2d(rows.map(({ x }) => x))).data();
  return rows.filter(({ y }, n) => Math.round(found[n]) === y).length / rows.length;
}

// disco's task "titanic", with sessions of this package in place of its trainer: the same network, columns, loss,
// optimiser and rounds. The clients are in one page here, each with its own passengers.

const COLUMNS = ['Age', 'SibSp', 'Parch', 'Fare', 'Pclass'];
const NETWORK = new URL('network.onnx', import.meta.url).href;
/** roundDuration: epochs between two averages */
export const TASK = { epochs: 10, roundDuration: 2, batchSize: 30 };

/** As Keras computes it: within limits, at which gradients still pass. */
function binaryCrossEntropy({ survived }, { target }) {
  const [least, most] = [1e-7, 1 - 1e-7];
  const p = survived.lt(least).where(least, survived.gt(most).where(most, survived));
  const lost = target.neg().add(1).mul(p.neg().add(1).log());
  return target.mul(p.log()).add(lost).mean().neg();
}

/** Rows of numbers: those of each client, and every fifth, which nobody trains with. */
export async function passengers(clients) {
  const text = await (await fetch(new URL('passengers.csv', import.meta.url))).text();
  const [names, ...lines] = text.trim().split('\n').map((line) => line.split(','));
  const rows = lines.map((line) => {
    const row = Object.fromEntries(line.map((value, n) => [names[n], Number(value)]));
    return { x: COLUMNS.map((name) => row[name]), y: row.Survived };
  });
  const others = rows.filter((_, n) => n % 5 !== 4);
  const parts = Array.from({ length: clients }, (_, client) => others.filter((_, n) => n % clients === client));
  return { parts, held: rows.filter((_, n) => n % 5 === 4) };
}

const tensors = (ort, rows) => ({
  x: new ort.Tensor('float32', Float32Array.from(rows.flatMap(({ x }) => x)), [rows.length, COLUMNS.length]),
  target: new ort.Tensor('float32', Float32Array.from(rows, ({ y }) => y), [rows.length, 1]),
});

/** A session for each client, all with the weights of the file. */
export function open(ort, clients) {
  const options = { loss: binaryCrossEntropy, optimizer: { adam: { rate: 0.001, epsilon: 1e-7 } }, executionProviders: ['wasm'] };
  return Promise.all(Array.from({ length: clients }, () => ort.TrainingSession.create(NETWORK, options)));
}

/** Trains each session with its part. `tell` gets each epoch of each client. */
export async function train(ort, sessions, { parts, held }, tell) {
  const average = averaging(sessions.length);
  const { epochs, roundDuration, batchSize } = TASK;
  await Promise.all(sessions.map((session, client) => {
    const afterEpoch = async ({ epoch, loss }) => {
      if (epoch === undefined) return; // after a step
      tell({ client, epoch, loss });
      if (epoch % roundDuration === 0) await average(session);
    };
    const options = { epochs, batchSize, shuffle: false, validation: tensors(ort, held), keepBest: false, callbacks: [afterEpoch] };
    return session.fit(tensors(ort, parts[client]), options);
  }));
}

/** A round: gives each session the mean of all weights, once all have called. */
function averaging(count) {
  let waiting = [];
  return async (session) => {
    const { data } = await session.getContiguousParameters();
    const mean = await new Promise((done) => {
      waiting.push({ data, done });
      if (waiting.length < count) return;
      const [given, sum] = [waiting, Float32Array.from(data, (_, n) => waiting.reduce((total, one) => total + one.data[n], 0))];
      waiting = [];
      for (const one of given) one.done(sum.map((x) => x / count));
    });
    await session.loadParametersBuffer(mean);
  };
}

/** The share of passengers that a session is right about. */
export async function accuracy(ort, session, rows) {
  const { x } = tensors(ort, rows);
  const { survived } = await session.evaluate({ x }, ['survived']);
  return rows.filter(({ y }, n) => Math.round(survived.data[n]) === y).length / rows.length;
}

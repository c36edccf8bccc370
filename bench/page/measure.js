// Times runtimes on one model, in turns: A B C A B C …

import { difference, expected, Feeds, fetchBuffer } from './model.js';

/** @typedef {import('./model.js').ModelInfo} ModelInfo */
/** @typedef {import('./model.js').Outputs} Outputs */
/** @typedef {{ run(options?: { signal?: AbortSignal }): Promise<Outputs>, release(): Promise<void> }} Session */
/** @typedef {{ create(bytes: Uint8Array, feeds: Feeds): Promise<Session> }} Runtime */
/** @typedef {{ error?: string, create?: number, first?: number, samples?: number[], difference?: number | string, placement?: Record<string, number> }} Timing milliseconds */
/** @typedef {{ seconds: number, rounds: number }} Effort of the turns of one model, at most */

// ms before a turn, in which the threads of the previous runtime stop spinning: after 5 ms ResNet-50 on two threads
// took us 115 ms and onnxruntime-web 183, after 40 ms 96 and 187.
const PAUSE = 40;
const SLOT = 100; // ms of a turn of models that take less: a scheduler needs some time to distribute threads that slept
const WARM = 1500; // ms of runs before the turns: optimising compilers and thread pools settle

const now = () => performance.now();
const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE));

/** @template T @param {() => Promise<T>} action @returns {Promise<[number, T]>} */
async function timed(action) {
  const start = now();
  const result = await action();
  return [now() - start, result];
}

/** Copies outputs, so that they outlive their run. @param {Outputs} outputs @returns {Outputs} */
function copy(outputs) {
  return Object.fromEntries(Object.entries(outputs).map(([name, { type, dims, data }]) => {
    return [name, { type, dims, data: /** @type {any} */ (data).slice() }];
  }));
}

/**
 * A session after its first run, and the outputs to compare.
 * @param {Runtime} runtime @param {ArrayBuffer} model @param {Feeds} feeds
 */
export async function start(runtime, model, feeds) {
  const bytes = new Uint8Array(model.slice(0));
  await pause();
  const [create, session] = await timed(() => runtime.create(bytes, feeds));
  const [first, outputs] = await timed(() => session.run());
  let last = outputs;
  if (Object.keys(feeds.info.feedback).length) for (let i = 1; i < feeds.info.checked; i++) last = await session.run();
  return { session, timing: { create, first, samples: /** @type {number[]} */ ([]) }, outputs: copy(last) };
}

/** Returns the milliseconds of the last of many runs. @param {Session} session */
async function warm(session) {
  const end = now() + WARM;
  for (;;) {
    const [time] = await timed(() => session.run());
    if (now() > end) return time;
  }
}

/**
 * Runs turns until time or rounds are used up, at least three, after all runtimes are warm.
 * @param {{ session: Session, timing: { samples: number[] } }[]} started @param {Effort} effort
 */
async function turns(started, { seconds, rounds }) {
  const repeats = [];
  for (const { session } of started) {
    const time = await warm(session);
    repeats.push(Math.max(1, Math.min(50, Math.round(SLOT / time))));
  }
  const end = now() + 1000 * seconds;
  for (let round = 0; round < rounds && (round < 3 || now() < end); round++) {
    for (const [i, { session, timing }] of started.entries()) {
      await pause();
      for (let n = 0; n < repeats[i]; n++) timing.samples.push((await timed(() => session.run()))[0]);
    }
  }
}

/** Results of the model with inner outputs. @param {Runtime} runtime @param {string} model @param {Feeds} feeds */
async function inner(runtime, model, feeds) {
  const session = await runtime.create(new Uint8Array(await fetchBuffer(model)), feeds);
  const outputs = copy(await session.run());
  await session.release();
  return outputs;
}

/**
 * @param {Record<string, Runtime>} runtimes @param {ModelInfo} info @param {Effort} effort
 * @returns {Promise<Record<string, Timing>>}
 */
export async function measure(runtimes, info, effort) {
  const [model, data, wanted] = await Promise.all([fetchBuffer(info.model), fetchBuffer(info.data), expected(info)]);
  const feeds = () => new Feeds(info, data);
  /** @type {Record<string, Timing>} */
  const timings = {};
  /** @type {{ session: Session, timing: any }[]} */
  const started = [];
  for (const [name, runtime] of Object.entries(runtimes)) {
    try {
      const { outputs, ...rest } = await start(runtime, model, feeds());
      started.push(rest);
      timings[name] = rest.timing;
      timings[name].difference = difference(info.check ? await inner(runtime, info.check, feeds()) : outputs, wanted);
      const explained = await /** @type {any} */ (rest.session).session?.explain?.();
      if (explained) timings[name].placement = explained.placement;
    } catch (error) {
      timings[name] = { error: String(/** @type {any} */ (error)?.message ?? error).slice(0, 300) };
    }
  }
  if (started.length) await turns(started, effort);
  for (const { session } of started) await session.release();
  return timings;
}

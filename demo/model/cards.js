// Cards with a button and the result of its action: a check of the GPU, other schedules, memory, and runs.

import { make, messageOf } from '../common.js';
import * as report from './report.js';
import { latency, outputs, summary } from './results.js';
import { timeline } from './timeline.js';

/** @typedef {import('pyruntime').InferenceSession} Session */
/** @typedef {import('./inputs.js').Inputs} Inputs */

const WARM_UP = 3; // runs of which the browser optimises the code

/** The card that compares the results of the providers for each kernel. @param {Session} session @param {Inputs} inputs */
export function checker(session, inputs) {
  const texts = {
    title: 'Verify the GPU', name: 'Verify', does: 'compares the results of each kernel on the GPU and on WebAssembly',
    meanwhile: 'Running each kernel on both …',
  };
  return actionCard('verify', texts, async () => [report.verification(await session.verify(inputs.feeds()))]);
}

/**
 * The card that measures other schedules.
 * @param {Session} session @param {Inputs} inputs @param {(choices: import('pyruntime').Tuned['choices']) => unknown} reopen
 */
export function tuner(session, inputs, reopen) {
  const texts = {
    title: 'Tune the kernels', name: 'Tune', does: 'tries other ways of computing the same on this device, and measures them',
    meanwhile: 'Measuring, some seconds for each schedule …',
  };
  return actionCard('tune', texts, async () => {
    const tuned = await session.tune(inputs.feeds());
    const found = make('p', {}, report.tuning(tuned));
    if (!Object.keys(tuned.choices).length) return [found];
    const button = make('button', { id: 'chosen' }, 'Reopen with the fastest');
    button.addEventListener('click', () => reopen(tuned.choices));
    return [found, button];
  });
}

/** The card that draws the memory of a run. @param {Session} session @param {Inputs} inputs */
export function drawer(session, inputs) {
  const texts = {
    title: 'Memory over a run', name: 'Draw', does: 'draws where each intermediate result is in memory, and how long', meanwhile: 'Running …',
  };
  return actionCard('timeline', texts, async () => {
    const { timeline: spans } = await session.memory({ feeds: inputs.feeds() });
    return [timeline(spans ?? [])];
  });
}

/**
 * @param {string} id @param {{ title: string, name: string, does: string, meanwhile: string }} texts @param {() => Promise<HTMLElement[]>} work
 */
function actionCard(id, { title, name, does, meanwhile }, work) {
  const button = /** @type {HTMLButtonElement} */ (make('button', { id }, name));
  const result = make('div', { id: `${id}-result`, class: 'small' });
  button.addEventListener('click', async () => {
    button.disabled = true;
    result.textContent = meanwhile;
    try {
      result.replaceChildren(...await work());
    } catch (error) {
      result.textContent = messageOf(error);
    }
    button.disabled = false;
  });
  const row = make('div', { class: 'row', style: 'margin-bottom: 0.6rem' }, button, make('span', { class: 'small soft' }, does));
  return report.card(title, row, result);
}

/** The card that runs the model. @param {Session} session @param {Inputs} inputs @param {(timings: readonly import('pyruntime').KernelTiming[]) => Promise<unknown>} after */
export function runner(session, inputs, after) {
  const runs = /** @type {HTMLInputElement} */ (make('input', { type: 'number', id: 'runs', min: 1, value: 50 }));
  const button = /** @type {HTMLButtonElement} */ (make('button', { class: 'main', id: 'time' }, 'Run and measure'));
  const result = make('div', { id: 'latency' });
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      const count = Math.max(1, Number(runs.value));
      const { times, results } = await measure(session, inputs.feeds(), count, result);
      const title = make('h2', { style: 'margin-top: 1.2rem' }, 'Outputs of the last run');
      result.replaceChildren(summary(times, count), latency(times), title, outputs(results), ...(inputs.text?.readings(results) ?? []));
      await after(await session.profile(inputs.feeds()).catch(() => []));
    } catch (error) {
      result.replaceChildren(make('p', { style: 'color: var(--bad)' }, messageOf(error)));
    }
    button.disabled = false;
  });
  const row = make('div', { class: 'row', style: 'margin: 1rem 0' }, button, make('label', { class: 'small soft' }, runs, ' runs'));
  return report.card('Run it', inputs.form(), row, result);
}

/**
 * Times `runs` runs, or those of five seconds, after some that do not count.
 * @param {Session} session @param {Record<string, import('pyruntime').Tensor>} feeds @param {number} runs @param {Element} result
 */
async function measure(session, feeds, runs, result) {
  result.textContent = 'Warming up';
  let results = await session.run(feeds);
  for (let n = 1; n < WARM_UP; n++) results = await session.run(feeds);
  /** @type {number[]} */
  const times = [];
  const begin = performance.now();
  while (times.length < runs && (times.length < 4 || performance.now() - begin < 5000)) {
    const start = performance.now();
    results = await session.run(feeds);
    times.push(performance.now() - start);
    if (times.length % 10 === 1) result.textContent = `Run ${times.length} of ${runs}`;
  }
  return { times, results };
}

// Bring your own model: shows its structure, placement and latency.

import * as ort from 'pyruntime';
import { $, bytes, make, messageOf, milliseconds, onFiles, readyText, Status } from '../common.js';
import { Dims } from './inputs.js';
import { chooseProvider } from './provider.js';
import * as report from './report.js';
import { latency, outputs, summary } from './results.js';
import { timeline } from './timeline.js';

const status = new Status($('#status'));
status.done('Python starts when you open a model');
/** @type {ort.InferenceSession | null} */
let current = null;
/** Opens the model again with another provider or other schedules. @type {((choices?: ort.Tuned['choices']) => Promise<void>) | null} */
let reopen = null;
const provider = await chooseProvider();

/**
 * @param {string | Blob} model @param {string} name @param {{ path: string, data: Blob }[]} externalData
 * @param {ort.Tuned['choices']} [choices] of `tune`
 */
async function open(model, name, externalData = [], choices) {
  $('#report').hidden = true;
  reopen = (chosen) => open(model, name, externalData, chosen);
  try {
    await current?.release();
    current = null;
    const start = performance.now();
    const options = { onProgress: status.progress, externalData, executionProviders: provider.value.split(','), choices };
    current = await ort.InferenceSession.create(/** @type {any} */ (model), options);
    status.done(`${name}: ${readyText(current.timings)} · total ${milliseconds(performance.now() - start)}`);
    await show(current);
  } catch (error) {
    status.failed(error);
  }
}

/** @param {...HTMLElement} cards */
const pair = (...cards) => make('div', { class: 'pair' }, ...cards);

/** @param {ort.InferenceSession} session */
async function show(session) {
  const details = make('div');
  const refresh = async () => details.replaceChildren(await compiledCards(session));
  await refresh();
  const dims = new Dims(session);
  $('#report').replaceChildren(
    timer(session, dims, refresh),
    ...(provider.value.startsWith('webgpu') ? [checker(session, dims)] : []),
    tuner(session, dims),
    drawer(session, dims),
    pair(report.signature('Inputs', session.inputMetadata), report.signature('Outputs', session.outputMetadata)),
    details,
  );
  $('#report').hidden = false;
}

/** Cards about the compiled model. Some models are compiled only when they first run. @param {ort.InferenceSession} session */
async function compiledCards(session) {
  try {
    const [explanation, memory] = await Promise.all([session.explain(), session.memory()]);
    const right = make('div', { style: 'display: grid; gap: 1.1rem' },
      report.card('Placement', report.placement(explanation)), report.card('Memory', report.memory(memory)));
    const nodes = report.card('Nodes', report.nodes(explanation));
    return make('div', { style: 'display: grid; gap: 1.1rem' }, pair(report.card('Operators', report.operators(explanation)), right), nodes);
  } catch (error) {
    if (!(error instanceof ort.SessionFailed)) throw error;
    return report.card('Operators', make('p', { class: 'soft' }, 'This model is compiled at its first run, because its Program depends on the inputs.'));
  }
}

/** The card that compares the results of the providers for each kernel. @param {ort.InferenceSession} session @param {Dims} dims */
function checker(session, dims) {
  const texts = {
    title: 'Verify the GPU', name: 'Verify', does: 'compares the results of each kernel on the GPU and on WebAssembly',
    meanwhile: 'Running each kernel on both …',
  };
  return actionCard('verify', texts, async () => [report.verification(await session.verify(dims.feeds()))]);
}

/** The card that measures other schedules. @param {ort.InferenceSession} session @param {Dims} dims */
function tuner(session, dims) {
  const texts = {
    title: 'Tune the kernels', name: 'Tune', does: 'measures other schedules of the kernels on this device',
    meanwhile: 'Measuring, some seconds for each schedule …',
  };
  return actionCard('tune', texts, async () => {
    const tuned = await session.tune(dims.feeds());
    const found = make('p', {}, report.tuning(tuned));
    if (!Object.keys(tuned.choices).length) return [found];
    const button = make('button', { id: 'chosen' }, 'Reopen with these schedules');
    button.addEventListener('click', () => reopen?.(tuned.choices));
    return [found, button];
  });
}

/** The card that draws the memory of a run. @param {ort.InferenceSession} session @param {Dims} dims */
function drawer(session, dims) {
  const texts = {
    title: 'Memory over a run', name: 'Draw', does: 'draws the address and the lifetime of each buffer', meanwhile: 'Running …',
  };
  return actionCard('timeline', texts, async () => {
    const { timeline: spans } = await session.memory({ feeds: dims.feeds() });
    return [timeline(spans ?? [])];
  });
}

/**
 * A card with a button and the result of its action.
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

/** The card that runs the model. @param {ort.InferenceSession} session @param {Dims} dims @param {() => Promise<unknown>} after */
function timer(session, dims, after) {
  const runs = /** @type {HTMLInputElement} */ (make('input', { type: 'number', id: 'runs', min: 1, value: 50 }));
  const button = /** @type {HTMLButtonElement} */ (make('button', { class: 'main', id: 'time' }, 'Measure'));
  const result = make('div', { id: 'latency' });
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      const count = Math.max(1, Number(runs.value));
      const { times, results } = await measure(session, dims.feeds(), count, result);
      const title = make('h2', { style: 'margin-top: 1.2rem' }, 'Outputs of the last run');
      result.replaceChildren(summary(times, count), latency(times.slice(1)), title, outputs(results));
      await after();
    } catch (error) {
      result.replaceChildren(make('p', { style: 'color: var(--bad)' }, messageOf(error)));
    }
    button.disabled = false;
  });
  const row = make('div', { class: 'row', style: 'margin-bottom: 1rem' }, button, make('label', { class: 'small soft' }, runs, ' runs with random inputs'));
  return report.card('Latency', row, dims.form(), result);
}

/**
 * Times the first run, then `runs` others or those of five seconds.
 * @param {ort.InferenceSession} session @param {Record<string, ort.Tensor>} feeds @param {number} runs @param {Element} result
 */
async function measure(session, feeds, runs, result) {
  /** @type {number[]} */
  const times = [];
  let results = {};
  const begin = performance.now();
  while (times.length <= runs && (times.length < 4 || performance.now() - begin < 5000)) {
    const start = performance.now();
    results = await session.run(feeds);
    times.push(performance.now() - start);
    if (times.length % 10 === 1) result.textContent = `Run ${times.length} of ${runs + 1}`;
  }
  return { times, results };
}

/** Opens files in place: they may be larger than memory. @param {File[]} files */
async function take(files) {
  const withSuffix = (/** @type {string} */ end) => files.find(({ name }) => name.endsWith(end));
  const model = withSuffix('.pyrt') ?? withSuffix('.onnx') ?? files[0]; // a Program can come with the model that has its weights
  if (!model) return;
  await open(model, `${model.name}, ${bytes(model.size)}`, files.filter((file) => file !== model).map((data) => ({ path: data.name, data })));
}

provider.addEventListener('change', () => reopen?.());
onFiles($('#drop'), take);
for (const button of document.querySelectorAll('[data-example]')) {
  button.addEventListener('click', () => open(button.getAttribute('data-example') ?? '', button.textContent ?? ''));
}

// Compiles the visitor's operator whenever its code changes, runs it, and shows its result and its code.

import * as ort from 'pyruntime';
import { $, bytes, duration, make, messageOf, quantile, Status } from '../common.js';
import { highlighted } from '../lib/highlight.js';
import { connectTabs } from '../lib/tabs.js';
import { readState, writeState } from '../lib/url_state.js';
import { EXAMPLES } from './examples.js';
import { figure, inputOf } from './values.js';

const DELAY = 250; // milliseconds without a key, before the code is compiled
const [WARM_UP, RUNS] = [5, 20];

const status = new Status($('#status'));
const shapes = /** @type {HTMLInputElement} */ ($('#shapes'));
const state = { source: '', shapes: '' };
/** @type {{ set: (text: string) => void }} */
let editor;
let timer = 0;
let version = 0;
let isWarm = false;
/** Versions are compiled one after another. @type {Promise<unknown>} */
let before = Promise.resolve();
const compileCode = fetch('compile.py').then((response) => response.text());

/** Sizes by input. @returns {number[][]} */
function sizes() {
  return shapes.value.split(';').map((text) => text.split(',').filter((part) => part.trim()).map((part) => {
    const size = Number(part);
    if (!Number.isInteger(size) || size < 0 || size > 4096) throw new RangeError(`“${part.trim()}” is no size: sizes are whole numbers up to 4096`);
    return size;
  }));
}

/** What is wrong with the code. The result stays that of the code before. @param {string} text */
function showProblem(text) {
  $('#problem').textContent = text;
  $('#problem').hidden = !text;
  if (text) status.failed('Not compiled. The result is that of the code before.');
}

/** @param {string} id @param {string} text @param {'wat' | 'wgsl'} language */
function showListing(id, text, language) {
  $(`#view-${id} pre`).replaceChildren(highlighted(text, language));
}

/** Runs the model of one node, several times. @param {Uint8Array} model @param {number[][]} dims */
async function run(model, dims) {
  const session = await ort.InferenceSession.create(model);
  try {
    const inputs = dims.map(inputOf);
    const feeds = Object.fromEntries(inputs.map(({ data, dims: own }, i) => [`x${i}`, new ort.Tensor('float32', data, own)]));
    /** @type {number[]} */
    const times = [];
    let output = await session.run(feeds);
    for (let n = 0; n < WARM_UP + RUNS; n++) {
      const start = performance.now();
      output = await session.run(feeds);
      if (n >= WARM_UP) times.push(performance.now() - start);
    }
    const { code } = await session.explain();
    return { inputs, output: /** @type {import('./values.js').Values} */ (/** @type {any} */ (output.y0)), time: quantile(times, 0.5), code };
  } finally {
    await session.release();
  }
}

/** @param {number} turn */
async function compile(turn) {
  if (turn !== version) return;
  const dims = sizes();
  const ask = async () => /** @type {any} */ (ort.python(await compileCode, { source: state.source, inputs: dims }));
  if (!isWarm) await ask(); // the first time loads the parts of the compiler that pages rarely use
  isWarm = true;
  const start = performance.now();
  const found = await ask();
  const took = performance.now() - start;
  if (turn !== version) return;
  if (found.error) return showProblem(found.error);
  showListing('wasm', found.wasm, 'wat');
  showListing('webgpu', found.webgpu, 'wgsl');
  $('#compile-time').textContent = duration(took);
  const { inputs, output, time, code } = await run(Uint8Array.from(atob(found.model), (letter) => letter.charCodeAt(0)), dims);
  if (turn !== version) return;
  $('#run-time').textContent = duration(time);
  $('#code-size').textContent = bytes(code);
  $('#values').replaceChildren(...inputs.map((values, i) => figure(`Input ${i + 1}`, values)), figure('Output', output));
  showProblem('');
  status.done(`${found.operator}: compiled and run`);
}

function changed() {
  clearTimeout(timer);
  const turn = ++version;
  state.shapes = shapes.value;
  writeState({ ...state });
  timer = setTimeout(() => {
    before = before.then(() => compile(turn)).catch((error) => showProblem(messageOf(error)));
  }, DELAY);
}

/** @param {string} text */
function setSource(text) {
  state.source = text;
  changed();
}

/** CodeMirror, or a plain field if the site was built without it. @returns {Promise<typeof editor>} */
async function createEditor() {
  const code = await import(new URL('../vendor/editor.mjs', import.meta.url).href).catch(() => null);
  if (code) return code.createEditor($('#editor'), state.source, 'Python code of the operator', setSource);
  const field = /** @type {HTMLTextAreaElement} */ (make('textarea', { 'aria-label': 'Python code of the operator', spellcheck: 'false' }, state.source));
  field.addEventListener('input', () => setSource(field.value));
  $('#editor').append(field);
  return { set: (text) => { field.value = text; setSource(text); } };
}

async function main() {
  connectTabs();
  const stored = await readState();
  Object.assign(state, typeof stored?.source === 'string' ? stored : EXAMPLES.Normalise);
  shapes.value = state.shapes;
  editor = await createEditor();
  for (const [name, example] of Object.entries(EXAMPLES)) {
    const button = make('button', { class: 'small' }, name);
    button.addEventListener('click', () => {
      shapes.value = example.shapes;
      editor.set(example.source);
    });
    $('#examples').append(button);
  }
  shapes.addEventListener('input', changed);
  await ort.boot(status.progress);
  changed();
}

main().catch((error) => status.failed(error));

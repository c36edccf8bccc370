// A chat model learns the manner of the visitor's text; what it writes before and after stands side by side.

import { $, bytes, duration, make, messageOf, onFiles, Status } from '../common.js';
import { showCode } from '../lib/code_dialog.js';
import { LearningCurve } from '../lib/learning_curve.js';
import { isThere, offlineError, storedNetworks } from '../lib/networks.js';
import { linkSettings } from '../lib/settings.js';
import { download } from '../lib/take_away.js';
import { Trainer } from '../lib/trainer.js';
import { link, unsupported } from '../lib/unsupported.js';
import { configOf, inJavaScript, inPython, withPeft } from './programs.js';
import { Student } from './student.js';

const MODEL = '../models/chat/model.gguf';
const COUNT = 60; // tokens that are written
const SEED = 7; // of the random numbers of both texts

const status = new Status($('#status'));
const curve = new LearningCurve(/** @type {SVGSVGElement} */ ($('#curve')));
/** @type {{ student: Student, trainer: Trainer } | null} */
let ready = null;
/** Whether the model measures or writes. */
let isBusy = false;
/** The settings of the text on the left; another one is written if they change. */
let shownBefore = '';

/** @template {HTMLElement} [T=HTMLButtonElement] @param {string} id @returns {T} */
const field = (id) => $(`#${id}`);
/** @param {string} id */
const valueOf = (id) => /** @type {HTMLInputElement} */ ($(`#${id}`)).value;
/** @param {string} id @param {string} text */
const show = (id, text) => { $(`#${id}`).textContent = text; };

/** Updates the buttons. */
function changed() {
  const { trainer, student } = ready ?? {};
  const isRunning = trainer?.isRunning ?? false;
  field('train').textContent = isRunning ? 'Stop' : trainer?.step ? 'Train on' : 'Train';
  field('train').disabled = !student?.isLongEnough || isBusy && !isRunning;
  field('over').disabled = isRunning || isBusy || !trainer?.step;
  field('write').disabled = !ready || isRunning || isBusy;
  field('download').disabled = isRunning || isBusy || !trainer?.step;
  for (const id of ['text', 'length']) /** @type {HTMLInputElement} */ ($(`#${id}`)).disabled = isRunning || isBusy;
}

/** Does one thing with the model; what fails is shown. @param {string} text of the status @param {() => Promise<string>} work returns the last status */
async function use(text, work) {
  if (isBusy) return;
  isBusy = true;
  status.busy(text);
  changed();
  try {
    status.done(await work());
  } catch (error) {
    status.failed(error);
  }
  isBusy = false;
  changed();
}

/** Numbers from 0 to 1, the same ones each time (the generator "mulberry32"). */
function randomNumbers() {
  let state = SEED;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Reads the text and the settings. What was learned stays. */
async function read() {
  const text = valueOf('text');
  if (!ready) return show('about', `${text.length} characters.`);
  const { student } = ready;
  student.read(text, Number(valueOf('length')));
  show('about', `${student.numbers.length} tokens.${student.isLongEnough ? '' : ' It needs some more.'}`);
  changed();
  if (student.isLongEnough) await use('Measuring a step', measure);
}

/** Tells beforehand what the training takes. */
async function measure() {
  const { student, trainer } = /** @type {NonNullable<typeof ready>} */ (ready);
  const found = await student.measure();
  trainer.time = found.time;
  show('time', duration(found.time));
  show('memory', bytes(found.memory));
  estimate();
  return 'Ready to learn';
}

function estimate() {
  if (!ready || Number.isNaN(ready.trainer.time)) return;
  const { student: { length }, trainer: { time } } = ready;
  show('estimate', `A step of ${length} tokens takes ${duration(time)} here: ${valueOf('steps')} steps take about ${duration(time * Number(valueOf('steps')))}. The page needs ${$('#memory').textContent} for that.`);
}

/** Writes a text on one side. @param {'before' | 'after'} side */
async function write(side) {
  const { student } = /** @type {NonNullable<typeof ready>} */ (ready);
  const text = document.createTextNode('');
  const prompt = valueOf('prompt') || '\n';
  $(`#${side}`).replaceChildren(make('b', {}, prompt), text);
  text.data = await student.write(prompt, COUNT, Number(valueOf('temperature')), randomNumbers(), (found) => {
    text.data = found;
    return text.isConnected;
  });
}

/** Writes what the model wrote before it learned, unless that is there. */
async function writeBefore() {
  const settings = JSON.stringify([valueOf('prompt'), valueOf('temperature')]);
  if (settings === shownBefore) return;
  await ready?.student.untaught(() => write('before'));
  shownBefore = settings;
}

async function writeBoth() {
  status.busy('Writing');
  await writeBefore();
  await write('after');
  show('after-title', `After ${ready?.trainer.step ?? 0} steps`);
  show('announced', `Before: ${$('#before').textContent} After: ${$('#after').textContent}`);
  return ready?.trainer.step ? `Learned ${ready.trainer.step} steps.` : 'Ready to learn';
}

/** @param {import('../lib/trainer.js').Progress} progress */
function showProgress({ step, loss, time }) {
  show('loss', Number.isNaN(loss) ? '–' : loss.toFixed(2));
  show('time', duration(time));
  curve.add({ step, loss });
  const left = goal - step;
  status.busy(left > 0 ? `Learning: step ${step} of ${goal}, about ${duration(left * time)} left` : 'Learning');
}
let goal = 0;

async function test() {
  const loss = await ready?.student.test();
  return loss === undefined ? '–' : loss.toFixed(2);
}

async function train() {
  if (!ready) return;
  const { trainer } = ready;
  if (trainer.isRunning) return void trainer.stop();
  await use('Writing', async () => {
    await writeBefore();
    const before = trainer.step ? '' : await test();
    goal = trainer.step + Number(valueOf('steps'));
    const running = trainer.train(Number(valueOf('steps')));
    changed();
    await running;
    const after = await test();
    if (before) field('held-out').dataset.before = before;
    show('held-out', `${field('held-out').dataset.before} → ${after}`);
    show('memory', bytes((await trainer.session.memory()).arena));
    return writeBoth();
  });
}

async function startOver() {
  await ready?.student.startOver();
  ready?.trainer.reset();
  curve.clear();
  for (const id of ['loss', 'held-out', 'after']) show(id, '–');
  show('after-title', 'After');
  return measure();
}

/** @param {string} text */
async function take(text) {
  /** @type {HTMLTextAreaElement} */ ($('#text')).value = text;
  await read();
}

function programs() {
  const prompt = valueOf('prompt');
  const shown = (/** @type {string} */ name, /** @type {string} */ text) => ({ name, url: URL.createObjectURL(new Blob([text])) });
  showCode([shown('peft.py', withPeft(prompt)), shown('tuned.js', inJavaScript(prompt)), shown('tuned.py', inPython(prompt))], 'The adapter in a program');
}

/** @type {Record<string, () => unknown>} */
const ACTIONS = {
  train,
  over: () => use('Starting over', startOver),
  write: () => use('Writing', writeBoth),
  sample: async () => take(await (await fetch('../speak/sonnets.txt')).text()),
  load: open,
  code: programs,
  download: async () => {
    const file = /** @type {Uint8Array<ArrayBuffer>} */ (await ready?.student.session.adapter());
    download('adapter_model.safetensors', file);
    download('adapter_config.json', configOf(file), 'application/json');
  },
};

async function open() {
  $('#door').hidden = true;
  try {
    const student = await Student.open(MODEL, status.progress);
    ready = { student, trainer: new Trainer(student.session, () => student.batch(), showProgress) };
    await read();
  } catch (error) {
    status.failed(offlineError(error));
    $('#door').hidden = false;
  }
}

function connect() {
  for (const [id, act] of Object.entries(ACTIONS)) {
    field(id).addEventListener('click', async () => { try { await act(); } catch (error) { status.failed(messageOf(error)); } });
  }
  for (const id of ['text', 'length']) $(`#${id}`).addEventListener('change', () => read());
  $('#steps').addEventListener('input', estimate);
  onFiles($('#drop'), async ([file]) => {
    try {
      const text = await file.text();
      /** @type {HTMLInputElement} */ ($('#prompt')).value = text.trimStart().split(/\s+/).slice(0, 3).join(' ');
      await take(text);
    } catch (error) {
      status.failed(error);
    }
  });
}

async function main() {
  connect();
  await linkSettings(['prompt', 'temperature', 'steps', 'length']);
  await ACTIONS.sample();
  if (!await isThere(MODEL)) {
    $('#absent').replaceWith(unsupported('This copy of the site was built without the language model.',
      'Its builder gets it by ', make('code', {}, 'make serve'), ' or ', make('code', {}, 'python -m scripts.site_models --download'), '. Meanwhile, ', link('../speak/index.html', 'a small network learns your text'), '.'));
    return status.done('Nothing is loaded.');
  }
  if ((await storedNetworks()).includes(new URL(MODEL, document.baseURI).href)) return open();
  $('#door').hidden = false;
  status.done('Nothing is loaded yet.');
}

main();

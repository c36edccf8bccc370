// Learns a text and writes on while it learns.

import { $, make, messageOf, onFiles, Status } from '../common.js';
import { forget, keep, kept } from '../lib/browser_store.js';
import { LearningCurve } from '../lib/learning_curve.js';
import { linkSettings } from '../lib/settings.js';
import { download, withMetadata } from '../lib/take_away.js';
import { Trainer } from '../lib/trainer.js';
import { Alphabet } from './alphabet.js';
import { SHORTEST, Writer } from './writer.js';

const NAME = 'speak'; // in the browser's store
const WRITES_EVERY = 4000; // ms, while it learns
const TESTS_EVERY = 800; // ms
const COUNT = 220; // characters that are written at once
const SHOWN = 8; // writings that stay on the page

const status = new Status($('#status'));
const curve = new LearningCurve(/** @type {SVGSVGElement} */ ($('#curve')));
let alphabet = new Alphabet('');
/** @type {{ writer: Writer, trainer: Trainer } | null} */
let ready = null;
let isWriting = false;
/** When it has last written and tested. */
const latest = { written: 0, tested: 0 };

/** @template {HTMLElement} [T=HTMLButtonElement] @param {string} id @returns {T} */
const field = (id) => $(`#${id}`);
/** @param {string} id */
const valueOf = (id) => /** @type {HTMLInputElement} */ ($(`#${id}`)).value;
/** What was kept or opened, as a sentence. @param {string} text */
const say = (text) => { $('#kept').textContent = text; };

/** Updates the buttons. */
function changed() {
  const { trainer } = ready ?? {};
  const isLong = Array.from(valueOf('text')).length >= SHORTEST;
  const isRunning = trainer?.isRunning ?? false;
  field('train').textContent = isRunning ? 'Stop' : trainer?.step ? 'Train on' : 'Train';
  field('train').disabled = !trainer || (!isRunning && !isLong);
  field('over').disabled = isRunning || !trainer?.step;
  field('write').disabled = !trainer || isWriting;
  field('download').disabled = !trainer?.step;
  /** @type {HTMLTextAreaElement} */ ($('#text')).readOnly = isRunning;
}

/** A new text: what was learned from another one is forgotten. @param {string} text */
async function take(text) {
  await ready?.trainer.stop();
  /** @type {HTMLTextAreaElement} */ ($('#text')).value = text;
  alphabet = new Alphabet(text);
  const count = Array.from(text).length;
  const short = count < SHORTEST ? ` It needs ${SHORTEST} at least.` : '';
  $('#about').textContent = `${count} characters, ${new Set(text).size} different ones.${short}`;
  await startOver();
}

async function startOver() {
  ready?.writer.read(valueOf('text'), alphabet);
  await ready?.writer.startOver();
  ready?.trainer.reset();
  curve.clear();
  for (const id of ['loss', 'accuracy', 'speed']) $(`#${id}`).textContent = '–';
  $('#written').replaceChildren(make('p', { class: 'soft' }, 'Nothing yet.'));
  changed();
}

/** Writes on from the prompt, and shows the characters as they come. */
async function write() {
  if (!ready || isWriting) return;
  isWriting = true;
  changed();
  const { writer, trainer } = ready;
  const [line, note] = [make('p'), make('small', {}, `after ${trainer.step} steps, temperature ${valueOf('temperature')}`)];
  const text = document.createTextNode('');
  const prompt = valueOf('prompt') || '\n';
  line.append(note, make('b', {}, prompt), text);
  const others = [...$('#written').children].filter((child) => !child.classList.contains('soft'));
  $('#written').replaceChildren(line, ...others.slice(0, SHOWN - 1));
  try {
    const written = await writer.write(alphabet.encode(prompt), COUNT, Number(valueOf('temperature')), (numbers) => {
      if (numbers.length % 8 === 0) text.data = alphabet.decode(numbers);
      return line.isConnected;
    });
    text.data = alphabet.decode(written);
  } finally {
    isWriting = false;
    latest.written = performance.now();
    changed();
  }
}

/** @param {import('../lib/trainer.js').Progress} progress */
async function showProgress({ step, loss, time }) {
  if (!ready) return;
  const now = performance.now();
  $('#loss').textContent = Number.isNaN(loss) ? '–' : loss.toFixed(2);
  $('#speed').textContent = Number.isNaN(time) ? '–' : Math.round((8 * 64 * 1000) / time).toLocaleString('en');
  const isLast = ready.trainer.isStopping;
  if (now - latest.tested > TESTS_EVERY || isLast) {
    latest.tested = now;
    const accuracy = await ready.writer.test();
    $('#accuracy').textContent = accuracy === undefined ? '–' : `${Math.round(100 * accuracy)} %`;
    curve.add({ step, loss, accuracy });
  }
  if (now - latest.written > WRITES_EVERY && !isLast) await write();
}

async function train() {
  if (!ready) return;
  const { trainer, writer } = ready;
  if (trainer.isRunning) return void trainer.stop();
  writer.read(valueOf('text'), alphabet);
  status.busy('Learning');
  latest.written = performance.now();
  const running = trainer.train(Number(valueOf('steps')));
  changed();
  try {
    await running;
    status.done(`Learned ${trainer.step} steps.`);
    await write();
  } catch (error) {
    status.failed(error);
  }
  changed();
}

/** @type {Record<string, () => unknown>} */
const ACTIONS = {
  train,
  over: startOver,
  write,
  sample: async () => take(await (await fetch('sonnets.txt')).text()),
  keep: async () => {
    const learned = ready ? { state: await ready.writer.session.state(), step: ready.trainer.step } : {};
    await keep(NAME, { text: valueOf('text'), characters: alphabet.characters, points: curve.points, ...learned });
    say('Kept in this browser, with what the network has learned.');
  },
  forget: async () => {
    await forget(NAME);
    await take('');
    say('Forgotten: this browser keeps nothing of it.');
  },
  download: async () => {
    const model = /** @type {Uint8Array} */ (await ready?.writer.session.export());
    download('decoder.onnx', withMetadata(model, { characters: JSON.stringify(alphabet.characters) }));
    download('tokenizer.json', alphabet.tokenizer(), 'application/json');
  },
};

/** Goes on from what the browser has kept, or with the sample. */
async function restore() {
  const found = await kept(NAME);
  await take(found?.text ?? await (await fetch('sonnets.txt')).text());
  if (!found?.state || !ready) return;
  alphabet = new Alphabet(found.characters);
  await ready.writer.session.load(found.state);
  Object.assign(ready.trainer, { step: found.step });
  curve.points = found.points;
  curve.draw();
  say('Kept in this browser since your last visit.');
}

async function main() {
  for (const [id, act] of Object.entries(ACTIONS)) {
    field(id).addEventListener('click', async () => { try { await act(); } catch (error) { say(messageOf(error)); } });
  }
  $('#text').addEventListener('change', () => take(valueOf('text')).catch((error) => status.failed(error)));
  onFiles($('#drop'), async ([file]) => {
    try {
      const text = await file.text();
      /** @type {HTMLInputElement} */ ($('#prompt')).value = Array.from(text.trimStart().split('\n')[0]).slice(0, 8).join('');
      await take(text);
    } catch (error) {
      status.failed(error);
    }
  });
  await linkSettings(['prompt', 'temperature', 'steps']);
  try {
    const writer = await Writer.open(status.progress);
    ready = { writer, trainer: new Trainer(writer.session, () => writer.batch(), showProgress) };
    await restore();
    status.done('Ready to learn');
  } catch (error) {
    status.failed(error);
  }
  changed();
}

main();

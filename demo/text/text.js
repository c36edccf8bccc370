// Text, written on piece by piece by a small decoder.

import * as ort from 'pyruntime';
import { $, bytes, milliseconds, readyText, Status } from '../common.js';
import { Decoder } from './decoder.js';
import { Pieces } from './pieces.js';

const LENGTH = 300; // pieces a text

const status = new Status($('#status'));
const button = /** @type {HTMLButtonElement} */ ($('#write'));
const prompt = /** @type {HTMLTextAreaElement} */ ($('#prompt'));
let stopped = true;

/** What the page's controls say. */
function settings() {
  const value = (/** @type {string} */ id) => Number(/** @type {HTMLInputElement} */ ($(id)).value);
  return { temperature: value('#temperature'), topK: value('#top-k'), topP: value('#top-p') };
}

/** @param {Decoder} decoder @param {Pieces} pieces */
async function write(decoder, pieces) {
  const text = $('#text');
  let ids = pieces.encode(prompt.value);
  if (!ids.length) ids = pieces.encode('\n'); // a paragraph begins
  text.replaceChildren(Object.assign(document.createElement('b'), { textContent: prompt.value }), document.createTextNode(''));
  decoder.restart();
  const begin = performance.now();
  let first = 0;
  for (let n = 0; n < LENGTH && !stopped; n++) {
    ids = [await decoder.step(ids, settings())];
    /** @type {Text} */ (text.lastChild).data += pieces.names[ids[0]];
    if (!n) first = performance.now();
    else if (n % 8 === 0 || n === LENGTH - 1) await told(decoder, n, first - begin, performance.now() - first);
  }
}

/** @param {Decoder} decoder @param {number} count @param {number} first @param {number} taken milliseconds */
async function told(decoder, count, first, taken) {
  $('#speed').textContent = `${Math.round((1000 * count) / taken)}`;
  $('#first').textContent = milliseconds(first);
  $('#cached').textContent = `${decoder.length}`;
  $('#memory').textContent = bytes((await decoder.session.memory()).arena);
}

/** @param {Decoder} decoder @param {Pieces} pieces */
async function pressed(decoder, pieces) {
  stopped = !stopped;
  if (stopped) return;
  button.textContent = 'Stop';
  $('#text').setAttribute('aria-busy', 'true');
  try {
    await write(decoder, pieces);
  } catch (error) {
    status.failed(error);
  }
  stopped = true;
  button.textContent = 'Write';
  $('#text').removeAttribute('aria-busy');
}

async function main() {
  try {
    const table = fetch('pieces.json').then((response) => /** @type {Promise<import('./pieces.js').Table>} */ (response.json()));
    const session = await ort.InferenceSession.create('decoder.onnx', { onProgress: status.progress, sampleFrom: 'logits' });
    const [decoder, pieces] = [new Decoder(session), new Pieces(await table)];
    status.done(readyText(session.timings));
    button.disabled = false;
    button.addEventListener('click', () => pressed(decoder, pieces));
  } catch (error) {
    status.failed(error);
  }
}

for (const control of document.querySelectorAll('input[type=range]')) {
  const shown = /** @type {HTMLOutputElement} */ (control.nextElementSibling);
  const show = () => { shown.value = /** @type {HTMLInputElement} */ (control).value; };
  control.addEventListener('input', show);
  show();
}
main();

// Text, written on token by token by a small decoder, or by one of the visitor's.

import { Tokenizer } from '@huggingface/tokenizers';
import * as ort from 'pyruntime';
import { $, bytes, milliseconds, onFiles, readyText, Status } from '../common.js';
import { Decoder } from './decoder.js';

const LENGTH = 300; // tokens a text

const status = new Status($('#status'));
const button = /** @type {HTMLButtonElement} */ ($('#write'));
const prompt = /** @type {HTMLTextAreaElement} */ ($('#prompt'));
/** @type {{ decoder: Decoder, tokenizer: Tokenizer } | null} */
let current = null;
let stopped = true;
/** The text that is being written. @type {Promise<void>} */
let writing = Promise.resolve();

/** What the page's controls say. */
function settings() {
  const value = (/** @type {string} */ id) => Number(/** @type {HTMLInputElement} */ ($(id)).value);
  return { temperature: value('#temperature'), topK: value('#top-k'), topP: value('#top-p') };
}

/** Characters that no token has are left out: they have no number. @param {Tokenizer} tokenizer @param {string} text */
const encode = (tokenizer, text) => tokenizer.encode(text).ids.filter((id) => id !== undefined);

/** @param {Decoder} decoder @param {Tokenizer} tokenizer */
async function write(decoder, tokenizer) {
  const given = encode(tokenizer, prompt.value);
  const all = given.length ? given : encode(tokenizer, '\n'); // a paragraph begins
  const text = () => tokenizer.decode(all, { skip_special_tokens: true });
  const prefix = text().length; // tokens together: one may be a part of a character
  const more = document.createTextNode('');
  $('#text').replaceChildren(Object.assign(document.createElement('b'), { textContent: prompt.value }), more);
  decoder.restart();
  const begin = performance.now();
  let [first, fresh] = [0, all.slice()];
  for (let n = 0; n < LENGTH && !stopped; n++) {
    fresh = [await decoder.step(fresh, settings())];
    const end = tokenizer.get_added_tokens_decoder().get(fresh[0])?.special;
    all.push(fresh[0]);
    more.data = text().slice(prefix);
    if (!n) first = performance.now();
    else if (n % 8 === 0 || n === LENGTH - 1 || end) await told(decoder, n, first - begin, performance.now() - first);
    if (end) return;
  }
}

/** @param {Decoder} decoder @param {number} count @param {number} first @param {number} taken milliseconds */
async function told(decoder, count, first, taken) {
  $('#speed').textContent = ((1000 * count) / taken).toFixed(taken > 100 * count ? 1 : 0);
  $('#first').textContent = milliseconds(first);
  $('#cached').textContent = `${decoder.length}`;
  $('#memory').textContent = bytes((await decoder.session.memory()).arena);
}

async function pressed() {
  stopped = !stopped;
  if (stopped || !current) return;
  button.textContent = 'Stop';
  $('#text').setAttribute('aria-busy', 'true');
  try {
    await write(current.decoder, current.tokenizer);
  } catch (error) {
    status.failed(error);
  }
  stopped = true;
  button.textContent = 'Write';
  $('#text').removeAttribute('aria-busy');
}

/** @param {string | File} model @param {string | Blob} table tokenizer.json @param {{ path: string, data: File }[]} [externalData] */
async function open(model, table, externalData = []) {
  stopped = button.disabled = true;
  try {
    await writing;
    await current?.decoder.session.release();
    current = null;
    const json = typeof table === 'string' ? fetch(table) : new Response(table);
    const options = { onProgress: status.progress, sampleFrom: 'logits', externalData };
    const session = await ort.InferenceSession.create(/** @type {any} */ (model), options);
    const config = { clean_up_tokenization_spaces: false }; // it would take spaces from the text
    current = { decoder: new Decoder(session), tokenizer: new Tokenizer(await (await json).json(), config) };
    status.done(readyText(session.timings));
    button.disabled = false;
  } catch (error) {
    status.failed(error);
  }
}

/** @param {File[]} files */
function take(files) {
  const table = files.find(({ name }) => name === 'tokenizer.json');
  const model = files.find(({ name }) => name.endsWith('.onnx'));
  if (!model || !table) return status.failed('A decoder is its .onnx file, the files with its weights if it has any, and tokenizer.json: choose them together');
  $('#about').textContent = `${model.name} writes on.`;
  return open(model, table, files.filter((file) => file !== model && file !== table).map((data) => ({ path: data.name, data })));
}

for (const control of document.querySelectorAll('input[type=range]')) {
  const shown = /** @type {HTMLOutputElement} */ (control.nextElementSibling);
  const show = () => { shown.value = /** @type {HTMLInputElement} */ (control).value; };
  control.addEventListener('input', show);
  show();
}
button.addEventListener('click', () => { writing = pressed(); });
onFiles($('#drop'), take);
open('decoder.onnx', 'tokenizer.json');

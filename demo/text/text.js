// Generates text token by token, with a small decoder or one that the visitor drops.

import { Tokenizer } from '@huggingface/tokenizers';
import * as ort from 'pyruntime';
import { $, bytes, duration, onFiles, readyText, Status } from '../common.js';
import { linkSettings } from '../lib/settings.js';
import { showCurve } from './curve.js';
import { Decoder } from './decoder.js';

const LENGTH = 300; // tokens of a text
const WARM_UP = 8; // tokens before the first text, while the browser optimises the code

const status = new Status($('#status'));
const button = /** @type {HTMLButtonElement} */ ($('#write'));
const prompt = /** @type {HTMLTextAreaElement} */ ($('#prompt'));
/** @type {{ decoder: Decoder, tokenizer: Tokenizer } | null} */
let current = null;
/** Pending while a text is written. @type {Promise<void> | null} */
let writing = null;
let stopped = false;
/** Decoders are opened one after another. @type {Promise<void>} */
let opening = Promise.resolve();
let waiting = 0;

/** The values of the page's controls. */
function settings() {
  const value = (/** @type {string} */ id) => Number(/** @type {HTMLInputElement} */ ($(id)).value);
  return { temperature: value('#temperature'), topK: value('#top-k'), topP: value('#top-p') };
}

/**
 * Leaves out characters that the vocabulary lacks: the tokenizer gives undefined for them.
 * @param {Tokenizer} tokenizer @param {string} text
 */
const encode = (tokenizer, text) => tokenizer.encode(text).ids.filter((id) => id !== undefined);

/** @param {Decoder} decoder @param {Tokenizer} tokenizer */
async function write(decoder, tokenizer) {
  const ids = encode(tokenizer, prompt.value);
  const all = ids.length ? ids : encode(tokenizer, '\n'); // starts a paragraph
  const text = () => tokenizer.decode(all, { skip_special_tokens: true });
  const prefix = text().length; // all tokens are decoded together, because one may be a part of a character
  const more = document.createTextNode('');
  $('#text').className = '';
  $('#text').replaceChildren(Object.assign(document.createElement('b'), { textContent: prompt.value }), more);
  decoder.restart();
  const begin = performance.now();
  /** @type {number[]} */
  const times = [];
  let [first, fresh] = [0, all.slice()];
  for (let n = 0; n < LENGTH && !stopped; n++) {
    const start = performance.now();
    fresh = [await decoder.step(fresh, settings())];
    if (n) times.push(performance.now() - start);
    if (n % 24 === 0 || n === LENGTH - 1) showCurve($('#curve'), times);
    const end = tokenizer.get_added_tokens_decoder().get(fresh[0])?.special;
    all.push(fresh[0]);
    more.data = text().slice(prefix);
    if (!n) first = performance.now();
    else if (n % 8 === 0 || n === LENGTH - 1 || end) await showNumbers(decoder, n, first - begin, performance.now() - first);
    if (end) return;
  }
}

/** @param {Decoder} decoder @param {number} count @param {number} first @param {number} taken milliseconds */
async function showNumbers(decoder, count, first, taken) {
  $('#speed').textContent = ((1000 * count) / taken).toFixed(taken > 100 * count ? 1 : 0);
  $('#first').textContent = duration(first);
  $('#cached').textContent = `${decoder.length}`;
  $('#memory').textContent = bytes((await decoder.session.memory()).arena);
}

/** Updates the button. A stopped text ends with the current step. */
function showButton() {
  button.textContent = writing ? 'Stop' : 'Write';
  button.disabled = !current || waiting > 0 || (writing !== null && stopped);
}

/** @param {NonNullable<typeof current>} chosen */
async function begin({ decoder, tokenizer }) {
  $('#text').setAttribute('aria-busy', 'true');
  try {
    await write(decoder, tokenizer);
  } catch (error) {
    status.failed(error);
  }
  writing = null;
  $('#text').removeAttribute('aria-busy');
  showButton();
}

function pressed() {
  stopped = writing !== null;
  if (!stopped && current) writing = begin(current);
  showButton();
}

/**
 * @param {string | File} model @param {string | Blob} table tokenizer.json @param {{ path: string, data: File }[]} [externalData]
 * @param {string} [about] the prompt's label
 */
function open(model, table, externalData, about) {
  waiting++;
  stopped = true;
  showButton();
  opening = opening.then(async () => {
    try {
      await writing;
      await replaceDecoder(model, table, externalData);
      if (about) $('#about').textContent = about;
    } catch (error) {
      status.failed(error);
    }
    waiting--;
    showButton();
  });
}

/**
 * Replaces the decoder, unless this one fails.
 * @param {string | File} model @param {string | Blob} table @param {{ path: string, data: File }[]} [externalData]
 */
async function replaceDecoder(model, table, externalData = []) {
  const json = await (typeof table === 'string' ? await fetch(table) : new Response(table)).json();
  const tokenizer = new Tokenizer(json, { clean_up_tokenization_spaces: false }); // true removes spaces from the text
  const options = { onProgress: status.progress, sampleFrom: 'logits', externalData };
  const session = await ort.InferenceSession.create(/** @type {any} */ (model), options);
  try {
    const decoder = new Decoder(session);
    for (let n = 0; n < WARM_UP; n++) await decoder.step([1], settings());
    decoder.restart();
    await current?.decoder.session.release();
    current = { decoder, tokenizer };
  } catch (error) {
    await session.release();
    throw error;
  }
  status.done(readyText(session.timings));
}

/** @param {File[]} files */
function take(files) {
  const table = files.find(({ name }) => name === 'tokenizer.json');
  const model = files.find(({ name }) => name.endsWith('.onnx'));
  if (!model || !table) return status.failed('Choose all files of a decoder together: its .onnx file, its external data files, if any, and tokenizer.json');
  const others = files.filter((file) => file !== model && file !== table).map((data) => ({ path: data.name, data }));
  open(model, table, others, `Prompt for ${model.name}`);
}

await linkSettings(['prompt', 'temperature', 'top-k', 'top-p']);
button.addEventListener('click', pressed);
onFiles($('#drop'), take);
open('decoder.onnx', 'tokenizer.json');

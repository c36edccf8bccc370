// A chat with a language model in this page: its messages, the model, and what the visitor can do.

import { $, bytes, duration, make, onFiles, readyText, Status } from '../common.js';
import { showCode } from '../lib/code_dialog.js';
import { isThere, offlineError, storedNetworks } from '../lib/networks.js';
import { linkSettings } from '../lib/settings.js';
import { unsupported } from '../lib/unsupported.js';
import { Assistant } from './assistant.js';
import { Conversation, isSend } from './conversation.js';
import { isKept, keepCaches, keepChat, keptChat, readAgain } from './keep.js';
import { inJavaScript, inPython } from './programs.js';

/** @typedef {import('./conversation.js').Turn} Turn */

const MODEL = '../models/chat/model.gguf';
const IDLE = 1000; // milliseconds
const ENDED = { length: 'It ended at the longest answer of the settings.', token: '', text: '', format: '' };

const status = new Status($('#status'));
const question = /** @type {HTMLTextAreaElement} */ ($('#question'));
const send = /** @type {HTMLButtonElement} */ ($('#send'));
const conversation = new Conversation({ ask, edit: (place, text) => answerAfter([...turns.slice(0, place), { role: 'user', content: text }]), again: (place) => answerAfter(turns.slice(0, place)) });

/** @type {Turn[]} */
let turns = [];
/** @type {Assistant | null} */
let assistant = null;
let file = 'model.gguf';
/** Stops what the model does now. @type {AbortController | null} */
let work = null;
let isAnswering = false;
/** Settled when the model is free. @type {Promise<unknown>} */
let free = Promise.resolve();

/** The values of the page's controls. */
function settings() {
  const value = (/** @type {string} */ id) => Number(/** @type {HTMLInputElement} */ ($(id)).value);
  const written = /** @type {HTMLTextAreaElement} */ ($('#schema')).value;
  const format = /** @type {HTMLSelectElement} */ ($('#form')).value === 'json' ? { schema: schemaOf(written) } : undefined;
  return { temperature: value('#temperature'), topP: value('#top-p'), repetitionPenalty: value('#penalty'), maxTokens: value('#longest'), format };
}

/** @param {string} text @returns {Record<string, unknown>} */
function schemaOf(text) {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`The schema in the settings is no JSON: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/** What the model reads. @param {readonly Turn[]} chat */
function messagesOf(chat) {
  const system = /** @type {HTMLTextAreaElement} */ ($('#system')).value.trim();
  const told = chat.map(({ role, content }) => ({ role, content }));
  return system ? [{ role: 'system', content: system }, ...told] : told;
}

/** @param {string} text */
const announce = (text) => { $('#announced').textContent = text; };

/** Does one thing after the other on the model. @param {(model: Assistant, signal: AbortSignal) => Promise<void>} what */
function use(what) {
  const { signal } = work = new AbortController();
  free = free.then(async () => {
    try {
      if (assistant) await what(assistant, signal);
    } catch (error) {
      if (!signal.aborted) status.failed(error);
    }
  });
  return free;
}

/** @param {Turn[]} chat ends with a question */
function answerAfter(chat) {
  if (!assistant) return status.failed('Load the model first.');
  /** @type {Turn} */
  const answer = { role: 'assistant', content: '' };
  show([...chat, answer], true);
  conversation.toEnd();
  announce('The model writes.');
  use((model, signal) => write(model, chat, answer, signal));
}

/** Draws the messages, and keeps them. @param {Turn[]} chat @param {boolean} isWriting */
function show(chat, isWriting) {
  turns = chat;
  isAnswering = isWriting;
  conversation.show(turns, isWriting);
  showButton();
  keepChat(turns.filter(({ content }) => content));
}

/** @param {Assistant} model @param {Turn[]} chat @param {Turn} answer @param {AbortSignal} signal */
async function write(model, chat, answer, signal) {
  try {
    await stream(model, chat, answer, signal);
  } catch (error) {
    answer.note = signal.aborted ? 'You stopped it.' : 'It ended because of an error.';
    throw error;
  } finally {
    show(answer.content ? turns : chat, false);
    announce(`The model: ${answer.content}`);
  }
  setTimeout(keepWhenIdle, IDLE, answer);
}

/** Keeps the caches, which takes the model half a second for 2,000 tokens, unless the chat has gone on. @param {Turn} answer */
function keepWhenIdle(answer) {
  if (!isAnswering && turns.at(-1) === answer) use(keepCaches);
}

/** @param {Assistant} model @param {Turn[]} chat @param {Turn} answer @param {AbortSignal} signal */
async function stream(model, chat, answer, signal) {
  const pieces = model.answer(messagesOf(chat), settings(), signal);
  const begin = performance.now();
  let [first, count] = [0, 0];
  for (;;) {
    const { done, value } = await pieces.next();
    if (done) {
      answer.note = ENDED[value.reason];
      return showNumbers(model, chat, value);
    }
    count++;
    first ||= performance.now();
    answer.content = (answer.content + value).trimStart();
    conversation.write(answer.content);
    $('#first').textContent = duration(first - begin);
    if (count > 1) $('#speed').textContent = ((1000 * (count - 1)) / (performance.now() - first)).toFixed(1);
  }
}

/** @param {Assistant} model @param {Turn[]} chat @param {import('pyruntime/extras').Generated} found */
async function showNumbers(model, chat, { tokens, reused, first, milliseconds }) {
  if (tokens.length > 1) $('#speed').textContent = ((1000 * (tokens.length - 1)) / (milliseconds - first)).toFixed(1);
  $('#first').textContent = duration(first);
  $('#tokens').textContent = String((await model.writer.applyChatTemplate(messagesOf(chat))).length + tokens.length);
  $('#reused').textContent = String(reused);
  $('#memory').textContent = bytes(await model.memory());
}

/** @param {string} text */
function ask(text) {
  const asked = text.trim();
  if (!assistant) question.value = text;
  if (!asked || !assistant) return;
  question.value = '';
  answerAfter([...turns, { role: 'user', content: asked }]);
}

function showButton() {
  send.textContent = isAnswering ? 'Stop' : 'Send';
  send.disabled = !assistant;
}

/** Opens a model in place of the one before, unless it fails. @param {string | File} model */
async function open(model) {
  work?.abort();
  await free;
  $('#door').hidden = true;
  try {
    const opened = await Assistant.open(model, status.progress);
    await assistant?.release();
    assistant = opened;
    file = typeof model === 'string' ? 'model.gguf' : model.name;
    status.done(readyText(opened.session.timings));
    $('#memory').textContent = bytes(await opened.memory());
    if (turns.length) use(readChat); // before the next question comes
  } catch (error) {
    status.failed(offlineError(error));
    if (!assistant && typeof model === 'string') $('#door').hidden = false;
  }
  showButton();
}

/** @param {Assistant} model @param {AbortSignal} signal */
async function readChat(model, signal) {
  const { reused } = await readAgain(model, messagesOf(turns), signal);
  $('#reused').textContent = String(reused);
}

function connect() {
  $('#composer').addEventListener('submit', (event) => {
    event.preventDefault();
    if (isAnswering) work?.abort();
    else ask(question.value);
  });
  question.addEventListener('keydown', (event) => {
    if (!isSend(event)) return;
    event.preventDefault();
    if (!isAnswering) ask(question.value);
  });
  $('#new').addEventListener('click', () => {
    work?.abort();
    free = free.then(() => {
      show([], false);
      question.focus();
    });
  });
  $('#code').addEventListener('click', () => {
    try {
      showPrograms();
    } catch (error) {
      status.failed(error);
    }
  });
  $('#load').addEventListener('click', () => {
    conversation.focus(); // the button goes away
    open(MODEL);
  });
  onFiles($('#drop'), ([chosen]) => open(chosen));
}

/** The chat as programs of the visitor's own. */
function showPrograms() {
  const chat = turns.at(-1)?.role === 'assistant' ? turns.slice(0, -1) : turns;
  const messages = messagesOf(chat.length ? chat : [{ role: 'user', content: 'Hello' }]);
  const shown = (/** @type {string} */ name, /** @type {string} */ text) => ({ name, url: URL.createObjectURL(new Blob([text])) });
  showCode([shown('chat.js', inJavaScript(messages, settings(), file)), shown('chat.py', inPython(messages, settings(), file))], 'This chat as a program');
}

async function main() {
  connect();
  await linkSettings(['system', 'form', 'schema', 'temperature', 'top-p', 'penalty', 'longest']);
  turns = await keptChat();
  if (!await isKept) $('#kept').textContent = 'Another tab keeps its chat; this one ends with its tab.';
  conversation.show(turns, false);
  conversation.toEnd();
  if (!await isThere(MODEL)) {
    $('#absent').replaceWith(unsupported('This copy of the site was built without the language model.',
      'Its builder gets it by ', make('code', {}, 'make serve'), ' or ', make('code', {}, 'python -m scripts.site_models --download'), '. You can drop a .gguf file below: it is not sent anywhere.'));
    return status.done('Nothing is loaded.');
  }
  const isStored = (await storedNetworks()).includes(new URL(MODEL, document.baseURI).href);
  if (isStored) return open(MODEL);
  $('#door').hidden = false;
  status.done('Nothing is loaded yet.');
}

main();

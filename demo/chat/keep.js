// What is kept of the chat between visits, in this browser's database: its messages, and what the model has computed of them.

import { forget, keep, kept } from '../lib/browser_store.js';

/** @typedef {import('./conversation.js').Turn} Turn */
/** @typedef {import('./assistant.js').Assistant} Assistant */

const [MESSAGES, CACHES] = ['chat', 'caches of the chat'];
/** Without storage they last for this visit. */
const ignored = () => {};
const WAIT = 1000; // milliseconds; a tab that is loaded again may still have the lock

/** Whether the chat of this tab is kept: of one tab at a time, so that none overwrites another's. @type {Promise<boolean>} */
export const isKept = new Promise((resolve) => {
  const held = () => new Promise(() => resolve(true)); // until the tab closes
  if (navigator.locks) navigator.locks.request('chat', { signal: AbortSignal.timeout(WAIT) }, held).catch(() => resolve(false));
  else resolve(true);
});

/** @param {readonly Turn[]} turns */
export async function keepChat(turns) {
  if (await isKept) await (turns.length ? keep(MESSAGES, turns) : Promise.all([MESSAGES, CACHES].map(forget))).catch(ignored);
}

/** The messages of the last visit. @returns {Promise<Turn[]>} */
export const keptChat = async () => (await isKept && await kept(MESSAGES)) || [];

/** Keeps the caches of the newest answer. @param {Assistant} assistant */
export async function keepCaches({ writer }) {
  if (await isKept) await writer.save().then((caches) => keep(CACHES, caches)).catch(ignored); // or of a model without a text yet
}

/**
 * Reads the messages, so that the next answer begins soon. What the kept caches have is not computed again.
 * @param {Assistant} assistant @param {readonly import('./assistant.js').Message[]} messages @param {AbortSignal} signal
 */
export async function readAgain(assistant, messages, signal) {
  const caches = await kept(CACHES);
  if (caches) await assistant.writer.restore(caches).catch(ignored); // those of another model are refused
  const pieces = assistant.answer(messages, { temperature: 0, topP: 1, repetitionPenalty: 1, maxTokens: 1 }, signal);
  for (;;) {
    const { done, value } = await pieces.next();
    if (done) return value;
  }
}

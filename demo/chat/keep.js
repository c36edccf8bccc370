// Where the chat is kept between visits: its messages in this browser's database. The caches are computed again from them
// while the visitor reads; this file is the one place that would store them, too.

import { forget, keep, kept } from '../lib/browser_store.js';

/** @typedef {import('./conversation.js').Turn} Turn */
/** @typedef {import('./assistant.js').Assistant} Assistant */

const NAME = 'chat';

/** @param {readonly Turn[]} turns */
export const keepChat = (turns) => (turns.length ? keep(NAME, turns) : forget(NAME)).catch(() => {}); // without storage: for this visit

/** The messages of the last visit. @returns {Promise<Turn[]>} */
export const keptChat = async () => await kept(NAME) ?? [];

/** Reads the messages, so that the next answer begins soon. @param {Assistant} assistant @param {readonly import('./assistant.js').Message[]} messages @param {AbortSignal} signal */
export async function readAgain(assistant, messages, signal) {
  for await (const piece of assistant.answer(messages, { temperature: 0, topP: 1, repetitionPenalty: 1, maxTokens: 1 }, signal)) void piece;
}

// The messages on the page, with what can be done with each.

import { $, make } from '../common.js';

/** @typedef {{ role: 'user' | 'assistant', content: string, note?: string }} Turn a message; note: why an answer ended early */
/** @typedef {{ edit: (place: number, text: string) => void, again: (place: number) => void }} Actions */

const SUGGESTIONS = ['What is the capital of France?', 'Explain gravity to a child in three sentences.', 'Give me three ideas for a rainy Sunday.'];
const NAMES = { user: 'You', assistant: 'The model' };

export class Conversation {
  /** @param {Actions & { ask: (text: string) => void }} actions */
  constructor(actions) {
    this.actions = actions;
    this.list = $('#messages');
  }

  /** Draws all messages. The last answer has no buttons while it is written. @param {readonly Turn[]} turns @param {boolean} isWriting */
  show(turns, isWriting) {
    const last = turns.length - 1;
    const isNear = this.isAtEnd();
    const hadFocus = this.list.contains(document.activeElement);
    this.list.replaceChildren(...turns.map((turn, place) => this.item(turn, place, isWriting, place === last)));
    if (!turns.length) this.list.append(this.welcome());
    if (isNear) this.toEnd();
    if (hadFocus) this.focus(); // what had it is replaced
  }

  /** For keys. A phone shows no keyboard for it. */
  focus() {
    this.list.focus({ preventScroll: true });
  }

  /** Replaces the text of the last message. @param {string} text */
  write(text) {
    const isNear = this.isAtEnd();
    const shown = this.list.querySelector('.message:last-child .text');
    if (shown) shown.textContent = text;
    if (isNear) this.toEnd();
  }

  isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    return scrollHeight - scrollTop - clientHeight < 60;
  }

  toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
  }

  /** @param {Turn} turn @param {number} place @param {boolean} isWriting @param {boolean} isLast */
  item({ role, content, note }, place, isWriting, isLast) {
    const text = make('p', { class: 'text' }, content);
    const item = make('div', { class: `message ${role}${isWriting && isLast ? ' writing' : ''}` }, make('span', { class: 'who' }, NAMES[role]), text);
    if (note) item.append(make('p', { class: 'note' }, note));
    if (isWriting) return item;
    const actions = make('div', { class: 'actions' }, button('Copy', (pressed) => copy(pressed, content)));
    if (role === 'user') actions.append(button('Edit', () => this.edit(item, content, place, isLast)));
    if (isLast) actions.append(button(role === 'user' ? 'Answer' : 'Regenerate', () => this.actions.again(place + Number(role === 'user'))));
    item.append(actions);
    return item;
  }

  /** Replaces a message by a field. @param {HTMLElement} item @param {string} content @param {number} place @param {boolean} isLast */
  edit(item, content, place, isLast) {
    const field = /** @type {HTMLTextAreaElement} */ (make('textarea', { 'aria-label': 'Your message, to edit', rows: 3 }));
    field.value = content;
    const send = () => { if (field.value.trim()) this.actions.edit(place, field.value.trim()); };
    const cancel = () => {
      item.replaceWith(this.item({ role: 'user', content }, place, false, isLast));
      this.focus();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') cancel();
      if (!isSend(event)) return;
      event.preventDefault();
      send();
    });
    item.classList.add('editor');
    item.replaceChildren(field, make('div', { class: 'actions' }, button('Send', send), button('Cancel', cancel)));
    field.focus();
  }

  welcome() {
    const asks = SUGGESTIONS.map((text) => button(text, () => this.actions.ask(text)));
    return make('div', {}, make('p', { class: 'soft' }, 'Ask something, or begin with one of these:'), make('div', { class: 'suggestions' }, ...asks));
  }
}

/** Whether a key sends a text. While a word is composed, Enter chooses it. @param {KeyboardEvent} event */
export const isSend = ({ key, shiftKey, isComposing }) => key === 'Enter' && !shiftKey && !isComposing;

/** @param {string} text @param {(pressed: HTMLElement) => void} pressed */
function button(text, pressed) {
  const made = make('button', { type: 'button', class: 'small' }, text);
  made.addEventListener('click', () => pressed(made));
  return made;
}

/** @param {HTMLElement} pressed @param {string} text */
async function copy(pressed, text) {
  const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  pressed.textContent = copied ? 'Copied' : 'The browser refuses';
  setTimeout(() => { pressed.textContent = 'Copy'; }, 2000);
}

// Shows the classes and their examples; the visitor chooses, renames and removes them.

import { make } from '../common.js';
import { isHeldOut } from './classes.js';

/** @template T @typedef {import('./classes.js').Class<T>} Class */

/** @template T */
export class ClassList {
  /**
   * @param {HTMLElement} place @param {import('./classes.js').Classes<T>} classes @param {(example: T) => Element} picture of an example
   * @param {() => unknown} changed the visitor has changed them
   */
  constructor(place, classes, picture, changed) {
    this.place = place;
    this.classes = classes;
    this.picture = picture;
    this.changed = changed;
    /** The class that the next example belongs to. @type {Class<T> | null} */
    this.chosen = null;
  }

  show() {
    const { all } = this.classes;
    if (!this.chosen || !all.includes(this.chosen)) this.chosen = all[0] ?? null;
    this.place.replaceChildren(...all.map((one) => this.row(one)));
  }

  /** A new class, whose name the visitor writes next. @param {string} name */
  add(name) {
    this.chosen = this.classes.add(name);
    this.update();
    const field = /** @type {HTMLInputElement} */ (this.place.querySelector('li:last-child input[type=text]'));
    field.focus();
    field.select();
  }

  /** @param {Class<T>} one */
  row(one) {
    const radio = /** @type {HTMLInputElement} */ (make('input', { type: 'radio', name: 'class', 'aria-label': `Choose ${one.name}` }));
    radio.checked = one === this.chosen;
    radio.addEventListener('change', () => this.choose(one));
    const name = /** @type {HTMLInputElement} */ (make('input', { type: 'text', value: one.name, maxlength: 24, 'aria-label': 'Name' }));
    name.addEventListener('focus', () => this.choose(one));
    name.addEventListener('change', () => {
      one.name = name.value.trim() || one.name;
      this.update();
    });
    const remove = make('button', { class: 'plain', 'aria-label': `Remove ${one.name}` }, '✕');
    remove.addEventListener('click', () => {
      this.classes.remove(one);
      this.update();
    });
    const examples = one.examples.map((example, n) => this.example(one, example, n));
    const item = make('li', { class: one === this.chosen ? 'chosen' : '' }, radio, name, make('span', { class: 'examples' }, ...examples), remove);
    item.addEventListener('click', ({ target }) => { if (target instanceof Element && !target.closest('button, input')) radio.click(); });
    return item;
  }

  /** @param {Class<T>} one @param {T} example @param {number} n */
  example(one, example, n) {
    const text = `Remove example ${n + 1} of ${one.name}${isHeldOut(n) ? ', held out' : ''}`;
    const button = make('button', { class: isHeldOut(n) ? 'example held-out' : 'example', 'aria-label': text, title: text });
    button.append(this.picture(example));
    button.addEventListener('click', () => {
      one.examples.splice(n, 1);
      this.update();
    });
    return button;
  }

  /** @param {Class<T>} one */
  choose(one) {
    if (this.chosen === one) return;
    this.chosen = one;
    for (const [n, item] of [...this.place.children].entries()) {
      const isChosen = this.classes.all[n] === one;
      item.classList.toggle('chosen', isChosen);
      /** @type {HTMLInputElement} */ (item.querySelector('input[type=radio]')).checked = isChosen;
    }
    this.changed();
  }

  /** Rows are made anew, so the focus goes to the row that takes the place. */
  update() {
    const at = [...this.place.children].findIndex((row) => row.contains(document.activeElement));
    this.show();
    this.changed();
    const row = this.place.children[Math.min(at, this.place.children.length - 1)];
    if (at >= 0) /** @type {HTMLElement | null} */ (row?.querySelector('input[type=radio]'))?.focus();
  }
}

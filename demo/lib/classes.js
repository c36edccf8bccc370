// The visitor's classes, each with its examples: drawings or photographs. Every third example is held out: it is not learned,
// but shows how well the network does on what it has not seen.

const HELD_OUT = 3;

/** slot: the output of the network that stands for the class. @template T @typedef {{ slot: number, name: string, examples: T[] }} Class */

/** @param {number} n index of an example */
export const isHeldOut = (n) => n % HELD_OUT === HELD_OUT - 1;

/** @template T @param {Class<T>} one */
export const learned = ({ examples }) => examples.filter((_, n) => !isHeldOut(n));

/** @template T @param {Class<T>} one */
export const heldOut = ({ examples }) => examples.filter((_, n) => isHeldOut(n));

/** @template T @param {T[]} list @returns {T} */
export const anyOf = (list) => list[Math.floor(Math.random() * list.length)];

/** @template T */
export class Classes {
  /** @param {number} most outputs of the network */
  constructor(most) {
    this.most = most;
    /** @type {Class<T>[]} */
    this.all = [];
  }

  get isFull() {
    return this.all.length >= this.most;
  }

  /** Whether there is something to tell apart. */
  get areEnough() {
    return this.all.filter((one) => learned(one).length > 0).length >= 2;
  }

  get names() {
    return this.all.map(({ name }) => name);
  }

  /** Names by output of the network. */
  get slots() {
    return Array.from({ length: this.most }, (_, slot) => this.all.find((one) => one.slot === slot)?.name ?? '');
  }

  /** @param {string} name @param {T[]} [examples] @param {number} [slot] @returns {Class<T>} */
  add(name, examples = [], slot = this.freeSlot()) {
    const one = { slot, name: name.slice(0, 24), examples };
    this.all.push(one);
    return one;
  }

  freeSlot() {
    const used = new Set(this.all.map(({ slot }) => slot));
    return Array.from({ length: this.most }, (_, n) => n).find((n) => !used.has(n)) ?? 0;
  }

  /** @param {Class<T>} one */
  remove(one) {
    this.all = this.all.filter((other) => other !== one);
  }

  /** Learned examples for a step, with their slots: every class is as likely as the others. @param {number} count */
  draw(count) {
    const some = this.all.filter((one) => learned(one).length);
    return Array.from({ length: count }, () => anyOf(some)).map((one) => ({ slot: one.slot, example: anyOf(learned(one)) }));
  }

  /** Held-out examples; label: the index of the class. */
  get tests() {
    return this.all.flatMap((one, label) => heldOut(one).map((example) => ({ label, example })));
  }

  /** The scores of the classes, for each row of the network's output. @param {Float32Array} data @returns {number[][]} */
  scoresOf(data) {
    return Array.from({ length: data.length / this.most }, (_, row) => this.all.map(({ slot }) => data[row * this.most + slot]));
  }
}

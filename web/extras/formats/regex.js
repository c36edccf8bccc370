// Regular expressions as parts of grammars: what JavaScript and the package regex of Rust read alike, in Unicode mode.

import { InvalidInput } from '../../common/errors.js';
import { LAST, Node, complement } from '../../runtime/grammar.js';

const MOST_COPIES = 10_000;
const MOST_DEPTH = 100;
/** Classes, as first and last code points. @type {Record<string, number[]>} */
const CLASSES = { d: [48, 57], w: [48, 57, 65, 90, 95, 95, 97, 122], s: [9, 13, 32, 32] };
/** @type {Record<string, number>} */
const ESCAPES = { n: 10, r: 13, t: 9, f: 12, v: 11, 0: 0 };

export const chars = (/** @type {number[]} */ ...ranges) => new Node('chars', [], ranges);
export const sequence = (/** @type {Node[]} */ ...parts) => new Node('sequence', parts);
export const choice = (/** @type {Node[]} */ ...parts) => new Node('choice', parts);
export const repeat = (/** @type {Node} */ part, /** @type {number} */ least, /** @type {number} */ most) => new Node('repeat', [part], [], least, most);
export const optional = (/** @type {Node} */ part) => repeat(part, 0, 1);
/** @param {string} text */
export const literal = (text) => sequence(...[...text].map((c) => chars(codeOf(c), codeOf(c))));
/** @param {string} c */
const codeOf = (c) => /** @type {number} */ (c.codePointAt(0));

/** All characters, and those that are no end of a line. */
export const ANY = chars(0, LAST);
const DOT = chars(...complement([10, 10, 13, 13, 0x2028, 0x2029]));

/**
 * The texts that match as a whole. isPart: those of which a part matches, as `pattern` of JSON Schema has it. Throws InvalidInput.
 * @param {string} text @param {string} [where] for messages @param {boolean} [isPart] @returns {Node}
 */
export function readRegex(text, where = 'the regex of the format', isPart = false) {
  return new Reader(text, where, isPart).whole();
}

class Reader {
  /** @param {string} text @param {string} where @param {boolean} isPart */
  constructor(text, where, isPart) {
    this.text = [...text];
    this.where = where;
    this.isPart = isPart;
    this.at = 0;
  }

  get next() {
    return this.text[this.at] ?? '';
  }

  /** @param {string} c */
  take(c) {
    if (!this.rest().startsWith(c)) return false;
    this.at += c.length;
    return true;
  }

  rest() {
    return this.text.slice(this.at, this.at + 12).join('');
  }

  /** @param {string} text */
  refused(text) {
    return new InvalidInput(`${this.where} is refused at character ${this.at + 1}: ${text}`, { hint: 'patterns without assertions, references and flags are expected' });
  }

  whole() {
    const found = [this.anchored()];
    while (this.take('|')) found.push(this.anchored());
    if (this.next) throw this.refused(`${this.next} is not expected`);
    return found.length === 1 ? found[0] : choice(...found);
  }

  /** An alternative, with what may be before and behind it. */
  anchored() {
    let isFirst = false;
    while (this.take('^')) isFirst = true;
    const part = this.sequence(0);
    let isLast = false;
    while (this.take('$')) isLast = true;
    if (this.next && this.next !== '|') throw this.refused(this.next === ')' ? 'there is no ( for this )' : `${this.next} is not expected`);
    const others = repeat(ANY, 0, -1);
    return this.isPart ? sequence(...isFirst ? [] : [others], part, ...isLast ? [] : [others]) : part;
  }

  /** @param {number} depth @returns {Node} */
  choice(depth) {
    if (depth > MOST_DEPTH) throw this.refused('too many groups in one another');
    const found = [this.sequence(depth)];
    while (this.take('|')) found.push(this.sequence(depth));
    return found.length === 1 ? found[0] : choice(...found);
  }

  /** @param {number} depth @returns {Node} */
  sequence(depth) {
    const found = [];
    while (this.next && !'|)$'.includes(this.next)) found.push(this.repeated(this.element(depth)));
    if (this.next === '$' && depth) throw this.refused('$ is only known at the end');
    return sequence(...found);
  }

  /** @param {number} depth @returns {Node} */
  element(depth) {
    if (this.take('(')) {
      if (this.next === '?' && !this.take('?:') && !this.name()) throw this.refused(`a group that begins with (${this.rest().slice(0, 3)} is not known`);
      const found = this.choice(depth + 1);
      if (!this.take(')')) throw this.refused('a ) is missing');
      return found;
    }
    if (this.take('[')) return this.class();
    if (this.take('.')) return DOT;
    if ('*+?{^'.includes(this.next)) throw this.refused(this.next === '^' ? '^ is only known at the beginning' : `there is nothing to repeat before ${this.next}`);
    if (this.take('\\')) return chars(...this.escape());
    const code = codeOf(this.next);
    this.at++;
    return chars(code, code);
  }

  /** The name of a group. */
  name() {
    const [found] = /^\?P?<\w+>/.exec(this.text.slice(this.at).join('')) ?? [];
    this.at += found?.length ?? 0;
    return found;
  }

  /** @param {Node} part @returns {Node} */
  repeated(part) {
    let found = part;
    for (let n = 0; this.next && '*+?{'.includes(this.next); n++) {
      if (n) throw this.refused('a repetition of a repetition needs a group');
      if (this.take('*')) found = repeat(found, 0, -1);
      else if (this.take('+')) found = repeat(found, 1, -1);
      else if (this.take('?')) found = optional(found);
      else found = this.counted(found);
      this.take('?'); // whether as few as possible are taken changes no text
    }
    return found;
  }

  /** @param {Node} part @returns {Node} */
  counted(part) {
    const [whole, least, comma, most] = /^\{(\d+)(,?)(\d*)\}/.exec(this.text.slice(this.at, this.at + 24).join('')) ?? [];
    if (!whole) throw this.refused('a number of times is expected, such as {2}, {2,} or {2,5}; \\{ is the character');
    const counts = [Number(least), comma ? (most ? Number(most) : -1) : Number(least)];
    if (counts[1] >= 0 && counts[1] < counts[0]) throw this.refused('a number of times ends before it begins');
    if (Math.max(...counts) > MOST_COPIES) throw this.refused(`a part is repeated more than ${MOST_COPIES} times`);
    this.at += whole.length;
    return repeat(part, counts[0], counts[1]);
  }

  class() {
    const isOther = this.take('^');
    /** @type {number[]} */
    const ranges = [];
    while (this.next !== ']') {
      if (!this.next) throw this.refused('a ] is missing');
      if (this.next === '[' || this.rest().startsWith('&&') || this.rest().startsWith('--') || this.rest().startsWith('~~')) throw this.refused(`${this.next} in a class needs a \\`);
      const first = this.member();
      if (this.next === '-' && this.text[this.at + 1] !== ']' && first.length === 2 && first[0] === first[1]) {
        this.at++;
        const last = this.member();
        if (last.length !== 2 || last[0] !== last[1] || last[0] < first[0]) throw this.refused('a range of characters is damaged');
        ranges.push(first[0], last[0]);
      } else {
        ranges.push(...first);
      }
    }
    this.at++;
    const found = isOther ? complement(ranges) : ranges;
    if (!found.length) throw this.refused('a class has no characters');
    return chars(...found);
  }

  /** A character of a class, or a class in it. @returns {number[]} */
  member() {
    if (this.take('\\')) return this.escape();
    const code = codeOf(this.next || this.fail());
    this.at++;
    return [code, code];
  }

  /** @returns {never} */
  fail() {
    throw this.refused('a ] is missing');
  }

  /** What follows a backslash. @returns {number[]} */
  escape() {
    const c = this.next;
    const of = CLASSES[c.toLowerCase()];
    const [hex, two, four, braced] = /^(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|[ux]\{([0-9a-fA-F]{1,6})\})/.exec(this.rest()) ?? [];
    if (hex) {
      const code = parseInt(two ?? four ?? braced, 16);
      if (code > LAST || (code >= 0xD800 && code <= 0xDFFF)) throw this.refused('there is no such character');
      this.at += hex.length;
      return [code, code];
    }
    if (!c || (/[0-9A-Za-z]/.test(c) && !of && !(c in ESCAPES))) throw this.refused(`\\${c} is not known`);
    this.at++;
    if (of) return c in CLASSES ? of : complement([...of, 128, LAST]); // dialects differ in other characters
    const code = ESCAPES[c] ?? codeOf(c);
    return [code, code];
  }
}

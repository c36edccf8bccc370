// Text as numbers: characters, of which pairs are merged in the order of a list, within words. Sibling of kit/pieces.py.

/** @typedef {{ names: string[], merges: [string, string][] }} Table */

const WORD = /\n| ?[^ \n]+| /g;

export class Pieces {
  /** @param {Table} table */
  constructor({ names, merges }) {
    this.names = names;
    this.numbers = new Map(names.map((name, n) => [name, n]));
    this.ranks = new Map(merges.map((pair, n) => [pair.join('\0'), n]));
  }

  /** Characters that no piece has are left out. @param {string} text @returns {number[]} */
  encode(text) {
    return (text.match(WORD) ?? []).flatMap((word) => this.parts(word)).map((part) => /** @type {number} */ (this.numbers.get(part)));
  }

  /** @param {string} word @returns {string[]} */
  parts(word) {
    const parts = [...word].filter((c) => this.numbers.has(c));
    for (;;) {
      const ranks = parts.slice(1).map((part, n) => this.ranks.get(`${parts[n]}\0${part}`) ?? Infinity);
      const best = ranks.indexOf(Math.min(...ranks));
      if (best < 0 || ranks[best] === Infinity) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  }
}

// Which bytes may follow a text that is bound to a grammar: an automaton of bytes with calls of rules, made deterministic as far as
// texts reach. Its states stay, and so do the tokens that may follow each of them.

import { InvalidInput } from '../../common/errors.js';
import { KINDS, utf8Ranges } from './utf8.js';

/** @typedef {import('../../runtime/grammar.js').Node} Node */
/** A byte between low and high leads to a node. @typedef {{ low: number, high: number, to: number }} Edge */
/** A rule is at `node`, and where it ends, `parent` goes on. @typedef {{ node: number, parent: Stack | null, id: number }} Stack */

const MOST_NODES = 300_000;
const MOST_STATES = 5000; // then those that no text is in are forgotten

/** A set of stacks, each of which a text may be in. */
export class State {
  /** By byte: the next state, null if none. @type {(State | null | undefined)[]} */
  next = [];
  /** Bits of the tokens that may follow. @type {Int32Array | null} */
  mask = null;
  /** By kind of characters: the state behind any of them, null if it is not the same. @type {(State | null | undefined)[]} */
  behind = [];

  /** @param {readonly Stack[]} stacks those that go on with a byte @param {boolean} isComplete whether the text may end */
  constructor(stacks, isComplete) {
    this.stacks = stacks;
    this.isComplete = isComplete;
  }
}

export class Automaton {
  /** @type {Edge[][]} */
  edges = [];
  /** Nodes that need no byte. @type {number[][]} */
  skips = [];
  /** Rules, with the nodes behind them. @type {{ rule: string, to: number }[][]} */
  calls = [];
  /** First nodes of rules. @type {Map<string, number>} */
  firsts = new Map();
  /** Last nodes of rules. @type {Set<number>} */
  lasts = new Set();
  /** @type {Map<string, Stack>} */
  stacks = new Map();
  /** @type {Map<string, State>} */
  states = new Map();
  count = 0;

  /** @param {Map<string, Node>} rules none begins with itself @param {string} root */
  constructor(rules, root) {
    for (const name of rules.keys()) this.firsts.set(name, this.node());
    for (const [name, rule] of rules) this.lasts.add(this.add(rule, /** @type {number} */ (this.firsts.get(name))));
    this.start = /** @type {State} */ (this.state([this.stack(/** @type {number} */ (this.firsts.get(root)), null)]));
  }

  node() {
    if (this.edges.length === MOST_NODES) throw new InvalidInput('the format is too large', { hint: 'are there repetitions with large numbers, such as maxLength?' });
    this.skips.push([]);
    this.calls.push([]);
    return this.edges.push([]) - 1;
  }

  /** Adds a part of a grammar behind a node, and returns the node behind it. @param {Node} part @param {number} from @returns {number} */
  add(part, from) {
    const { kind, parts, ranges } = part;
    if (kind === 'sequence') return parts.reduce((at, one) => this.add(one, at), from);
    if (kind === 'repeat') return this.repeated(part, from);
    const to = this.node();
    if (kind === 'rule') this.calls[from].push({ rule: part.rule, to });
    if (kind === 'choice') for (const one of parts) this.skips[this.add(one, this.behind(from))].push(to);
    for (let n = 0; n < ranges.length; n += 2) for (const bytes of utf8Ranges(ranges[n], ranges[n + 1])) this.path(bytes, from, to);
    return to;
  }

  /** @param {number} from */
  behind(from) {
    const to = this.node();
    this.skips[from].push(to);
    return to;
  }

  /** @param {readonly (readonly [number, number])[]} bytes @param {number} from @param {number} to */
  path(bytes, from, to) {
    let at = from;
    for (const [n, [low, high]] of bytes.entries()) {
      const next = n === bytes.length - 1 ? to : this.node();
      this.edges[at].push({ low, high, to: next });
      at = next;
    }
  }

  /** @param {Node} part @param {number} from */
  repeated({ parts: [one], least, most }, from) {
    let at = from;
    for (let n = 0; n < least; n++) at = this.add(one, at);
    if (most < 0) {
      const loop = this.behind(at);
      this.skips[this.add(one, loop)].push(loop);
      return this.behind(loop);
    }
    const to = this.node();
    for (let n = least; n < most; n++) {
      this.skips[at].push(to);
      at = this.add(one, at);
    }
    this.skips[at].push(to);
    return to;
  }

  /** @param {number} node @param {Stack | null} parent @returns {Stack} the same object for the same place */
  stack(node, parent) {
    const key = `${node} ${parent?.id ?? ''}`;
    let found = this.stacks.get(key);
    if (!found) this.stacks.set(key, found = { node, parent, id: this.count++ });
    return found;
  }

  /** A state that is in these stacks; null if there are none. @param {readonly Stack[]} stacks */
  state(stacks) {
    const open = [...stacks];
    const seen = new Set(open);
    /** @type {Stack[]} */
    const kept = [];
    let isComplete = false;
    const visit = (/** @type {Stack} */ stack) => {
      if (!seen.has(stack)) open.push(stack);
      seen.add(stack);
    };
    for (let stack; (stack = open.pop());) {
      const { node, parent } = stack;
      if (this.edges[node].length) kept.push(stack);
      for (const to of this.skips[node]) visit(this.stack(to, parent));
      for (const { rule, to } of this.calls[node]) visit(this.stack(/** @type {number} */ (this.firsts.get(rule)), this.isLast(to) ? parent : this.stack(to, parent)));
      if (!this.lasts.has(node)) continue;
      if (parent) visit(parent);
      else isComplete = true;
    }
    return kept.length || isComplete ? this.interned(kept, isComplete) : null;
  }

  /** Whether nothing follows in its rule: a call there need not return. @param {number} node */
  isLast(node) {
    return this.lasts.has(node) && !this.edges[node].length && !this.skips[node].length && !this.calls[node].length;
  }

  /** @param {Stack[]} stacks @param {boolean} isComplete */
  interned(stacks, isComplete) {
    const key = `${stacks.map(({ id }) => id).sort((a, b) => a - b).join()} ${isComplete}`;
    let found = this.states.get(key);
    if (found) return found;
    if (this.states.size === MOST_STATES) this.forget();
    this.states.set(key, found = new State(stacks, isComplete));
    return found;
  }

  /** Texts hold the states that they are in, so these go on. */
  forget() {
    for (const state of this.states.values()) [state.next, state.behind] = [[], []];
    this.states.clear();
    this.stacks.clear();
  }

  /** The state after a byte; null if the grammar forbids it. Bytes that match the same edges share it. @param {State} state @param {number} byte */
  after(state, byte) {
    const found = state.next[byte];
    if (found !== undefined) return found;
    let [first, last] = [0, 255];
    const stacks = new Set();
    for (const { node, parent } of state.stacks) {
      for (const { low, high, to } of this.edges[node]) {
        if (byte < low) last = Math.min(last, low - 1);
        else if (byte > high) first = Math.max(first, high + 1);
        else {
          [first, last] = [Math.max(first, low), Math.min(last, high)];
          stacks.add(this.stack(to, parent));
        }
      }
    }
    const next = stacks.size ? this.state([...stacks]) : null;
    for (let n = first; n <= last; n++) state.next[n] = next;
    return next;
  }

  /** Whether any characters of these kinds may follow, up to so many. It may be wrong in saying no. @param {State} state @param {number} count @param {number} kinds */
  takes(state, count, kinds) {
    let at = /** @type {State | null} */ (count < Infinity ? state : null);
    for (let n = 0; at && n < count; n++) {
      const before = at;
      at = this.afterKinds(at, kinds);
      if (at === before) break;
    }
    return Boolean(at);
  }

  /** The state behind any character of these kinds; null if it is not the same. @param {State} state @param {number} kinds */
  afterKinds(state, kinds) {
    let found;
    for (const [kind, sequences] of KINDS.entries()) {
      if (!(kinds >> kind & 1)) continue;
      if (state.behind[kind] === undefined) {
        const all = sequences.map((ranges) => ranges.reduce((at, range) => at && this.afterAll(at, range), /** @type {State | null} */ (state)));
        state.behind[kind] = all.every((one) => one === all[0]) ? all[0] : null;
      }
      if (found !== undefined && found !== state.behind[kind]) return null;
      found = state.behind[kind];
    }
    return found ?? null;
  }

  /** The state after any byte of a range, if it is the same; else null. @param {State} state @param {readonly [number, number]} range */
  afterAll(state, [low, high]) {
    const found = this.after(state, low);
    for (let byte = low + 1; byte <= high; byte++) if (this.after(state, byte) !== found) return null;
    return found;
  }
}

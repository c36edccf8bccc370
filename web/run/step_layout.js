// Assigns addresses to the buffers of one step: largest first, each in the smallest gap among those alive at the same time
// (best fit). Mirrors pyruntime/native/memory/step_layout.py.

/** @typedef {import('./arena.js').Span} Span */
/** @typedef {import('./arena.js').Arena} Arena */

/** Memory that is in use from call `born` through call `dies`; `dies` is the number of calls if it outlives the step. */
export class LiveRange {
  /** @param {number} size rounded by the arena @param {number} born @param {number} dies @param {number} [address] -1: not assigned @param {boolean} [onGpu] on the GPU */
  constructor(size, born, dies, address = -1, onGpu = false) {
    this.size = size;
    this.born = born;
    this.dies = dies;
    this.address = address;
    this.onGpu = onGpu;
    this.reuses = 0; // number of buffers that took it over in place
  }

  get end() {
    return this.address + this.size;
  }
}

/**
 * Assigns addresses to ranges without one, and updates the arena to the state after the step.
 * @param {Arena} arena @param {LiveRange[]} ranges of this arena @param {number} calls
 */
export function layOut(arena, ranges, calls) {
  const old = ranges.filter(({ address }) => address >= 0);
  const occupied = occupiedSpans(arena, old);
  chooseAddresses(arena, ranges, occupied, calls);
  arena.rebuild([...occupied, ...ranges.filter(({ dies }) => dies >= calls)], ranges.reduce((top, { end }) => Math.max(top, end), 0));
}

/** The spans that stay in use for the whole step, merged with their neighbours. @param {Arena} arena @param {LiveRange[]} moving */
function occupiedSpans({ base, free, end }, moving) {
  /** @type {{ address: number, end: number }[]} */
  const spans = [];
  let at = base;
  for (const { address, size } of [...free, ...moving, { address: end, size: 0 }].sort((a, b) => a.address - b.address)) {
    if (address > at) spans.push({ address: at, end: address });
    at = address + size;
  }
  return spans;
}

/**
 * Largest first is nearly always best. If call order needs less memory, use it.
 * @param {Arena} arena @param {LiveRange[]} ranges @param {{ address: number, end: number }[]} occupied @param {number} calls
 */
function chooseAddresses(arena, ranges, occupied, calls) {
  const fresh = ranges.filter(({ address }) => address < 0);
  const rest = ranges.filter(({ address }) => address >= 0);
  const orders = [[...fresh].sort((a, b) => b.size - a.size || a.born - b.born), fresh];
  const [bySize, byCall] = orders.map((order) => bestFit(arena, order, rest, occupied, calls));
  for (const [range, address] of byCall.top < bySize.top ? byCall.found : bySize.found) range.address = address;
}

/**
 * Assigns addresses to the ranges of `fresh` in their order.
 * @param {Arena} arena @param {LiveRange[]} fresh @param {LiveRange[]} rest @param {{ address: number, end: number }[]} occupied @param {number} calls
 */
function bestFit(arena, fresh, rest, occupied, calls) {
  const [alive, begun] = [0, 1].map(() => Array.from({ length: calls }, () => /** @type {{ address: number, end: number }[]} */ ([]))); // by call: spans that are alive in it, and that start with it
  const occupy = (/** @type {LiveRange} */ { size, born, dies }, /** @type {number} */ address) => {
    const span = { address, end: address + size };
    begun[born].push(span);
    for (let now = born; now <= Math.min(dies, calls - 1); now++) alive[now].push(span);
    return span.end;
  };
  for (const range of rest) occupy(range, range.address);
  /** @type {Map<LiveRange, number>} */
  const found = new Map();
  let top = 0;
  for (const range of fresh) {
    const taken = [...occupied, ...alive[range.born], ...begun.slice(range.born + 1, range.dies + 1).flat()];
    const address = smallestGap(arena, range.size, taken.sort((a, b) => a.address - b.address));
    found.set(range, address);
    top = Math.max(top, occupy(range, address));
  }
  return { found, top };
}

/**
 * The start of the smallest gap of at least this size, or the first address after all spans.
 * @param {Arena} arena @param {number} size @param {{ address: number, end: number }[]} taken
 */
function smallestGap(arena, size, taken) {
  let best = -1;
  let room = Infinity;
  let at = arena.base;
  for (const { address, end } of taken) {
    const start = arena.clear(at, size);
    if (address - start >= size && address - at < room) {
      best = start;
      room = address - at;
    }
    at = Math.max(at, end);
  }
  return best < 0 ? arena.clear(at, size) : best;
}

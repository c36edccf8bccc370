// Where the tensors of one step lie: the largest first, each in the smallest gap among those alive at the same time.
// pyruntime/native/step_layout.py is its twin.

/** @typedef {import('./arena.js').Span} Span */
/** @typedef {import('./arena.js').Arena} Arena */

/** Memory from call `born` through call `dies`, which is the number of calls if it outlives the step. */
export class Tenant {
  /** @param {number} size as the arena rounds it @param {number} born @param {number} dies @param {number} [address] -1: to be found @param {boolean} [remote] on the GPU */
  constructor(size, born, dies, address = -1, remote = false) {
    this.size = size;
    this.born = born;
    this.dies = dies;
    this.address = address;
    this.remote = remote;
    this.heirs = 0; // buffers that took it over, in place
  }

  get end() {
    return this.address + this.size;
  }
}

/**
 * Gives addresses to the tenants that have none; the arena is then as it is after the step.
 * @param {Arena} arena @param {Tenant[]} tenants of this arena @param {number} calls
 */
export function house(arena, tenants, calls) {
  const old = tenants.filter(({ address }) => address >= 0);
  const walls = occupied(arena, old);
  layOut(arena, tenants, walls, calls);
  arena.rebuild([...walls, ...tenants.filter(({ dies }) => dies >= calls)], tenants.reduce((top, { end }) => Math.max(top, end), 0));
}

/** What stays in use for the whole step; neighbours are one. @param {Arena} arena @param {Tenant[]} moving */
function occupied({ base, free, end }, moving) {
  /** @type {{ address: number, end: number }[]} */
  const walls = [];
  let at = base;
  for (const { address, size } of [...free, ...moving, { address: end, size: 0 }].sort((a, b) => a.address - b.address)) {
    if (address > at) walls.push({ address: at, end: address });
    at = address + size;
  }
  return walls;
}

/**
 * The largest first is nearly always best; where the order of the calls reaches less far, that is taken.
 * @param {Arena} arena @param {Tenant[]} tenants @param {{ address: number, end: number }[]} walls @param {number} calls
 */
function layOut(arena, tenants, walls, calls) {
  const fresh = tenants.filter(({ address }) => address < 0);
  const rest = tenants.filter(({ address }) => address >= 0);
  const orders = [[...fresh].sort((a, b) => b.size - a.size || a.born - b.born), fresh];
  const [bySize, byCall] = orders.map((order) => place(arena, order, rest, walls, calls));
  for (const [tenant, address] of byCall.top < bySize.top ? byCall.found : bySize.found) tenant.address = address;
}

/**
 * Addresses for `fresh`, one after the other.
 * @param {Arena} arena @param {Tenant[]} fresh @param {Tenant[]} rest @param {{ address: number, end: number }[]} walls @param {number} calls
 */
function place(arena, fresh, rest, walls, calls) {
  const [alive, begun] = [0, 1].map(() => Array.from({ length: calls }, () => /** @type {{ address: number, end: number }[]} */ ([]))); // in each call, with it
  const settle = (/** @type {Tenant} */ { size, born, dies }, /** @type {number} */ address) => {
    const span = { address, end: address + size };
    begun[born].push(span);
    for (let now = born; now <= Math.min(dies, calls - 1); now++) alive[now].push(span);
    return span.end;
  };
  for (const tenant of rest) settle(tenant, tenant.address);
  /** @type {Map<Tenant, number>} */
  const found = new Map();
  let top = 0;
  for (const tenant of fresh) {
    const taken = [...walls, ...alive[tenant.born], ...begun.slice(tenant.born + 1, tenant.dies + 1).flat()];
    const address = gap(arena, tenant.size, taken.sort((a, b) => a.address - b.address));
    found.set(tenant, address);
    top = Math.max(top, settle(tenant, address));
  }
  return { found, top };
}

/**
 * The start of the smallest gap that holds so much, or the first address behind all.
 * @param {Arena} arena @param {number} size @param {{ address: number, end: number }[]} taken
 */
function gap(arena, size, taken) {
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

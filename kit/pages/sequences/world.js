// What a sequence of commands has made: sessions and what uses them, calls that nobody has awaited, faults of the GPU.
// The values that calls should give come from plain evaluators (plain.js), which remember nothing of a session.

const LIMIT = 60; // seconds that a call may take, on a busy machine

/** What faults of the GPU may do to a session that names no other provider, or recovers from none. */
const ERRORS = {
  lost: ({ fallback, kind }) => [...fallback ? [] : ['DeviceLost'], ...kind === 'training' ? ['SessionFailed'] : []], // weights may be lost
  full: ({ hasNext }) => (hasNext ? [] : ['OutOfMemory']),
  shader: ({ hasNext }) => (hasNext ? [] : ['ExecutionError']),
};

/** A call that was made. what: its text; entry: of the session; judge: of the outcome in the order of the calls. */
class Call {
  constructor(what, entry, promise, judge) {
    Object.assign(this, { what, entry, judge });
    this.outcome = promise.then((value) => ({ value, error: '' }), (cause) => ({ cause, error: cause?.type ?? cause?.name ?? String(cause) }));
  }
}

/**
 * A session, or a batcher or generator of one. fallback: whether it recovers; hasNext: whether a provider follows the GPU;
 * excuses: types of errors that faults explain
 */
export class Entry {
  isReleased = false;
  isClosed = false;
  excuses = new Set();

  constructor(kind, object, settings) {
    Object.assign(this, { kind, object, ...settings });
    const { providers = ['wasm'], fallback = true } = settings;
    this.isOnGpu = providers.includes('webgpu') || providers.includes('auto');
    this.fallback = fallback;
    this.hasNext = fallback && (providers.includes('wasm') || providers.includes('auto'));
  }

  /** Faults happen while a session is made, too: `excuses` of one that is not there yet. */
  excuse(fault) {
    if (this.isOnGpu) for (const type of ERRORS[fault](this)) this.excuses.add(type);
  }
}

export class World {
  /** @type {Entry[]} */
  entries = [];
  /** @type {Call[]} */
  pending = [];
  /** Tensors that runs have made, with the right values. */
  tensors = [];
  /** Numbers of problems that the page or the worker has reported. */
  problems = [];
  fault = '';
  isLimited = false;

  constructor(tools) {
    Object.assign(this, tools);
  }

  /** The n-th live entry of this kind, modulo their number. */
  pick(kind, n) {
    const all = this.entries.filter((entry) => entry.kind === kind);
    return all[n % all.length];
  }

  has(kind) {
    return this.entries.some((entry) => entry.kind === kind);
  }

  // ── calls ──

  /** Makes a call, which must return a promise. judge(outcome) throws if its result is wrong, and returns whether an error is right. */
  async call(what, entry, make, judge, isAwaited = true) {
    let promise;
    try {
      promise = make();
    } catch (error) {
      throw new Error(`${what} threw instead of rejecting: ${error?.stack ?? error}`);
    }
    if (typeof promise?.then !== 'function') throw new Error(`${what} returned no promise`);
    this.pending.push(new Call(what, entry, promise, judge));
    if (isAwaited) await this.settle();
  }

  /** Awaits all calls, and judges them in the order in which they were made. */
  async settle() {
    while (this.pending.length) {
      const call = this.pending.shift();
      this.doing = call.what;
      this.judge(call, await inTime(call.outcome, LIMIT, this));
    }
    if (this.problems.length) throw new Error(`problems: ${this.problems.splice(0).join('; ')}`);
  }

  judge({ what, entry, judge }, outcome) {
    const { cause, error } = outcome;
    if (error && !(cause instanceof this.ort.PyRuntimeError)) throw new Error(`${what} rejected without a class: ${cause?.stack ?? cause}`);
    if (error && this.isExcused(entry, error)) return void judge({ ...outcome, isExcused: true });
    if (!judge(outcome) && error) throw new Error(`${what} rejected with ${error}: ${cause.message}`);
    if (!error && entry && !this.fault && !this.pending.length) entry.excuses.clear();
  }

  isExcused(entry, error) {
    return Boolean(entry) && (this.isLimited && error === 'OutOfMemory' || entry.excuses.has(error) || entry.isReleased && error === 'SessionFailed');
  }

  // ── faults ──

  /** A fault of the GPU, in the worker and in the page, until `heal`. */
  async inject(fault, skipped, times) {
    await this.settle();
    this.doing = `inject ${fault}`;
    this.fault = fault;
    for (const entry of this.entries) entry.excuse(fault);
    if (fault === 'lost') for (const tensor of this.tensors) if (tensor.entry.isOnGpu) tensor.isLost = true;
    await this.faults.inject(fault, skipped, times);
  }

  async heal() {
    await this.settle();
    this.fault = '';
    await this.faults.heal();
  }

  /** Limits the memory of all sessions together. @param {number | undefined} linear @param {number | undefined} gpu bytes */
  async limit(linear, gpu) {
    await this.settle();
    Object.assign(this.ort.env, { memoryLimit: linear, gpuMemoryLimit: gpu });
    this.isLimited = Boolean(linear || gpu);
  }

  // ── the end ──

  /** Settles what is under way and releases all. */
  async end() {
    await this.settle();
    await this.heal();
    await this.limit();
    for (const { entry, value, isDisposed } of this.tensors.splice(0)) if (!entry.isReleased && !isDisposed) value.dispose();
    for (const { object, isReleased } of this.entries.splice(0)) if (!isReleased) await object.release?.();
    if (this.problems.length) throw new Error(`problems: ${this.problems.splice(0).join('; ')}`);
  }

  /** After a failure: ends the worker, whatever it does. */
  async abandon() {
    this.doing += ', then a new worker';
    Object.assign(this.ort.env, { memoryLimit: undefined, gpuMemoryLimit: undefined });
    this.ort.shutdown();
    await this.faults.install();
    await this.faults.heal();
    this.problems.splice(0);
  }
}

/** The result of a promise. Throws if it takes more seconds. world: says what it does */
export async function inTime(promise, seconds, world) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${world.doing} has not ended within ${seconds} s`)), 1000 * seconds); });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Throws unless the numbers are near: the nets compute with integers, so only training rounds. */
export function checkNumbers(what, found, right, tolerance = 0) {
  const isSame = (one, v) => Math.abs(one - v) <= tolerance * (1 + Math.abs(v)) || Number.isNaN(one) && Number.isNaN(v);
  const isNear = found.length === right.length && right.every((v, i) => isSame(Number(found[i]), v));
  if (!isNear) throw new Error(`${what} is [${Array.from(found).slice(0, 12)}], not [${Array.from(right).slice(0, 12)}]`);
}

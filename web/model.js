// A model in the worker: its Program, or one for each set of values that its compilation needs.

import { Executor } from './executor.js';
import { SessionFailed } from './errors.js';

/** @typedef {import('./protocol.js').ValueInfo} ValueInfo */
/** @typedef {import('./protocol.js').WireTensor} WireTensor */
/** @typedef {import('./protocol.js').WireValue} WireValue */
/** @typedef {import('./python.js').Python} Python */
/** @typedef {import('./python.js').Read} Read */
/** @typedef {{ shared: boolean, threads?: number, pool?: import('./pool.js').ThreadPool | null }} Host shared: linear memory is */
/** @typedef {{ kind: string, dtype?: string | null, dims?: (number | string | null)[] | null, of?: Type }} Type */

const PROGRAMS = 16; // for different values, before the oldest is forgotten

export class Model {
  /** @param {Python} python @param {import('./python.js').ModelProxy} proxy @param {Read} read @param {Host} host */
  constructor(python, proxy, read, host) {
    this.python = python;
    this.proxy = proxy;
    this.read = read;
    this.host = host;
    const { inputs, outputs } = JSON.parse(proxy.info);
    this.inputs = inputs.map(valueInfo);
    this.outputs = outputs.map(valueInfo);
    /** Milliseconds of the phases of reading and compiling. @type {Record<string, number>} */
    this.phases = JSON.parse(proxy.timings);
    /** By the values they were compiled for. @type {Map<string, Executor>} */
    this.executors = new Map();
    /** @type {string[] | null} null: one Program for all feeds */
    this.needs = null;
  }

  /** Makes the Program ready, if there is one for all feeds. */
  async prepare() {
    const program = this.python.main(this.proxy);
    this.compiled(program);
    if (program) this.executors.set('', await Executor.create(program, this.read, this.python, this.host));
    else this.needs = JSON.parse(this.proxy.needs);
  }

  /** Takes over what the phases took. @param {import('./program.js').ProgramData | null} program */
  compiled(program) {
    if (program) Object.assign(this.phases, JSON.parse(program.python.timings));
  }

  /**
   * @param {Record<string, WireValue>} feeds
   * @param {Record<string, WireTensor | null>} fetches
   * @returns {Promise<Record<string, WireValue>>}
   */
  async run(feeds, fetches) {
    const executor = this.executors.get(this.key(feeds)) ?? (await this.specialise(feeds));
    return executor.run(flatten(feeds), fetches);
  }

  /** What a Program depends on. @param {Record<string, WireValue>} feeds */
  key(feeds) {
    const { needs } = this;
    if (!needs) return '';
    return JSON.stringify(Object.entries(feeds).map(([name, feed]) => [name, described(feed, needs.includes(name), true)]));
  }

  /** Compiles for these feeds; what has to be known may grow meanwhile. @param {Record<string, WireValue>} feeds @returns {Promise<Executor>} */
  async specialise(feeds) {
    for (;;) {
      const needs = this.needs ?? [];
      const entries = Object.entries(feeds).map(([name, feed]) => [name, described(feed, needs.includes(name), false)]);
      const program = this.python.specialise(this.proxy, Object.fromEntries(entries));
      this.needs = /** @type {string[]} */ (JSON.parse(this.proxy.needs));
      if (!program) continue;
      this.compiled(program);
      const executor = await Executor.create(program, this.read, this.python, this.host);
      const [oldest] = this.executors;
      if (this.executors.size >= PROGRAMS && oldest) {
        oldest[1].release();
        this.executors.delete(oldest[0]);
      }
      this.executors.set(this.key(feeds), executor);
      return executor;
    }
  }

  /** The Program used last, for reports. @returns {Executor} */
  get latest() {
    const latest = [...this.executors.values()].pop();
    if (!latest) throw new SessionFailed('this model is compiled when it first runs', { hint: 'run it once' });
    return latest;
  }

  arenaBytes() {
    return [...this.executors.values()].reduce((sum, executor) => sum + executor.arenaBytes(), 0);
  }

  release() {
    for (const executor of this.executors.values()) executor.release();
    this.executors.clear();
    this.proxy.destroy();
  }
}

/** @param {{ name: string } & Type} type @returns {ValueInfo} */
function valueInfo({ name, ...type }) {
  const optional = type.kind === 'optional';
  const inner = /** @type {Type} */ (optional ? type.of : type);
  const sequence = inner.kind === 'sequence';
  const tensor = /** @type {Type} */ (sequence ? inner.of : inner);
  return { name, dtype: tensor.dtype ?? null, shape: tensor.dims ?? null, optional, sequence };
}

/** @param {WireValue} feed @param {boolean} values @param {boolean} ranks a rank instead of dims, where values do not matter @returns {unknown} */
function described(feed, values, ranks) {
  if (feed === null) return null;
  if (Array.isArray(feed)) return feed.map((item) => described(item, values, ranks));
  const { type, dims, data } = feed;
  if (!values) return { dtype: type, dims: ranks ? dims.length : dims };
  return { dtype: type, dims, data: Array.from(/** @type {ArrayLike<any>} */ (data), (x) => (typeof x === 'bigint' ? Number(x) : x)) };
}

/** Items of sequences by path, as the Program names its inputs. @param {Record<string, WireValue>} feeds @returns {Record<string, WireTensor>} */
function flatten(feeds) {
  /** @type {Record<string, WireTensor>} */
  const flat = {};
  for (const [name, feed] of Object.entries(feeds)) {
    if (Array.isArray(feed)) Object.assign(flat, flatten(Object.fromEntries(feed.map((item, n) => [`${name}[${n}]`, item]))));
    else if (feed) flat[name] = feed;
  }
  return flat;
}

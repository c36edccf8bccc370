// Checks a provider in JavaScript (docs/extending.md#providers-in-javascript): runs small models on it and on WebAssembly. In Node.js
//
//     node node_modules/pyruntime/dist/provider_check.mjs ./products.js [OPTION=VALUE …]
//
// prints the first thing that is wrong; in a page `checkProvider` returns that. The worker imports this file, too: with `?of=ADDRESS` its default export is
// that provider, watched. Exit status: 0 without findings, 1 with some, 2 if the provider cannot be checked.

/** A provider, or an instance of it. @typedef {Record<string, any>} Provider */
/** A view of linear memory. @typedef {Uint8Array & { dims: readonly number[] }} View */
/** inputs: element type and dims by name. @typedef {{ model: string, inputs: Record<string, [string, (number | string)[]]>, sizes: number[] }} Small */
/** @typedef {{ findings: string[], taken: string[] }} Result */
/** @typedef {Float32Array | Uint16Array | BigInt64Array | Int32Array | Int8Array | Uint8Array} Data */
/** @typedef {{ type: string, data: Data }} Tensor */
/** @typedef {Record<string, Tensor>} Tensors */
/** @typedef {{ run(feeds: Tensors, options?: object): Promise<Tensors>, explain(): Promise<{ moved: { reason: string }[] }>, release(): Promise<void> }} Session */
/**
 * The package.
 * @typedef {{ Tensor: new (type: string, data: Data, dims: number[]) => Tensor, registerProvider(address: URL): Promise<string>,
 *   InferenceSession: { create(model: Uint8Array, options: object): Promise<Session> } }} Ort
 */

/** What follows a finding. @type {Record<string, string>} */
const ADVICE = {
  'computes other values than WebAssembly': 'Compute what the kernel says, or refuse it in supports.',
  'computes other values with several sessions': 'Keep in each session\'s object what its jobs write.',
  'computes other values when it runs again': 'Keep nothing between runs that changes results.',
  'leaves elements of an output unwritten': 'Write every element: all are undefined before the job.',
  'reads its outputs': 'Their elements are undefined before the job: write them first.',
  'changes an input': 'Copy the array first: others read it, too.',
  'changes its answers': 'Answer by the kernel alone.',
  'ends other sessions, too': 'Return a new object from open, with what close ends.',
  'gets in the way when a job fails': 'It is also called after an error, and must not throw one then.',
  'does not end': 'Use time limits for what it waits for.',
  'fails': 'Refuse in supports what it cannot run.',
  'is not written, but runStart is': 'Write both: runEnd is also called after a run that failed.',
  'accept values of any type': 'Give the option a boolean, a number or a text as default.',
  'takes no kernel of these models': 'Check it with options with which it takes small kernels.',
};
const QUESTIONS = ['supports', 'supportsNode', 'cost', 'reads', 'fuses', 'packs'];

// ── in the worker ──

const parameters = new URL(import.meta.url).searchParams;
const [address, id] = [parameters.get('of'), parameters.get('id')];
const channel = address ? new BroadcastChannel(`provider check ${id}`) : null;

/** Tells the page. @param {string[]} entry */
const tell = (...entry) => channel?.postMessage(entry);
if (channel) channel.onmessage = () => tell('', 'heard', ''); // an answer to the page, which follows all that was told before

/** @param {() => unknown} action @param {string} member */
async function called(action, member) {
  try {
    return await action();
  } catch (error) {
    tell(member, 'fails', String(error));
    throw error;
  }
}

/** @param {Provider} inner */
function watched(inner) {
  return {
    ...watchedInstance(inner, 'module'),
    name: `${inner.name} ${id}`,
    takesParts: inner.takesParts,
    options: { ...inner.options, check: '' },
    async open(/** @type {Record<string, unknown>} */ { check, ...options }, /** @type {number} */ threads) {
      const made = inner.open ? await inner.open(options, threads) : inner;
      return typeof made === 'object' && made ? watchedInstance(made, String(check)) : made;
    },
  };
}

/** @param {Provider} inner @param {string} check what is checked: '', 'values', 'failing' */
function watchedInstance(inner, check) {
  const ask = (/** @type {string} */ name) => (/** @type {unknown[]} */ ...given) => {
    const [first, again] = [inner[name](...given), inner[name](...given)];
    if (JSON.stringify(first) !== JSON.stringify(again)) tell(name, 'changes its answers', `${JSON.stringify(first)}, then ${JSON.stringify(again)}`);
    return first;
  };
  const passed = (/** @type {string} */ name) => (/** @type {unknown[]} */ ...given) => called(() => inner[name](...given), name);
  const written = (/** @type {string[]} */ names) => names.filter((name) => inner[name] !== undefined);
  return {
    ...Object.fromEntries(written(QUESTIONS).map((name) => [name, ask(name)])),
    ...Object.fromEntries(written(['runStart', 'runEnd', 'close']).map((name) => [name, check === 'failing' && name === 'runEnd' ? guarded(inner) : passed(name)])),
    compile: inner.compile && ((/** @type {{ kernels: { kind: string, routine?: string }[] }} */ part) => {
      for (const { kind, routine } of part.kernels) tell('', 'takes', routine ?? kind);
      const bind = inner.compile(part);
      return typeof bind === 'function' ? watchedBind(bind, check) : bind;
    }),
  };
}

/** `runEnd` after a job that has failed. @param {Provider} inner */
const guarded = (inner) => async (/** @type {unknown} */ error) => {
  try {
    await inner.runEnd(error);
  } catch (thrown) {
    tell('runEnd', 'gets in the way when a job fails', String(thrown));
    throw thrown;
  }
};

/** @param {(...given: unknown[]) => unknown} bind @param {string} check */
const watchedBind = (bind, check) => async (/** @type {View[]} */ inputs, /** @type {View[]} */ outputs, /** @type {unknown} */ symbols) => {
  const found = await called(() => bind(inputs, outputs, symbols), 'bind');
  if (typeof found !== 'function') return found;
  const job = /** @type {() => unknown} */ (found);
  if (check === 'failing') return () => { throw new Error('an error that the check made'); };
  return check === 'values' ? () => called(job, 'job') : () => tried(() => called(job, 'job'), inputs, outputs);
};

/** Runs a job three times, with its outputs full of one byte, the same, and another one. @param {() => unknown} job @param {View[]} inputs @param {View[]} outputs */
async function tried(job, inputs, outputs) {
  const bytes = (/** @type {View[]} */ views) => views.map(({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength));
  const text = (/** @type {View[]} */ views) => bytes(views).map((view) => view.join()).join(';');
  const before = text(inputs);
  const made = [];
  for (const filler of [0, 0, 1]) {
    for (const view of bytes(outputs)) view.fill(filler);
    await job();
    made.push(bytes(outputs).flatMap((view) => [...view]));
  }
  const [first, again, other] = made;
  const differ = first.flatMap((value, n) => (value === other[n] ? [] : [n]));
  if (before !== text(inputs)) tell('job', 'changes an input');
  else if (first.some((value, n) => value !== again[n])) tell('job', 'computes other values when it runs again');
  else if (differ.length) tell('job', differ.every((n) => first[n] === 0 && other[n] === 1) ? 'leaves elements of an output unwritten' : 'reads its outputs');
}

export default address ? watched((await import(/* webpackIgnore: true */ /* @vite-ignore */ address)).default ?? {}) : undefined;

// ── in the page ──

/** An array of an element type, from integers by index. @type {Record<string, (length: number, at: (n: number) => number) => Data>} */
const ARRAYS = {
  float32: (length, at) => Float32Array.from({ length }, (_, n) => Math.sin(at(n) / 9)),
  float16: (length, at) => Uint16Array.from({ length }, (_, n) => [0x3800, 0xb400, 0x3400, 0xb800, 0x2e66][at(n) % 5]),
  int64: (length, at) => BigInt64Array.from({ length }, (_, n) => BigInt(at(n) % 9)),
  int32: (length, at) => Int32Array.from({ length }, (_, n) => at(n) % 9),
  int8: (length, at) => Int8Array.from({ length }, (_, n) => at(n) % 9),
  uint8: (length, at) => Uint8Array.from({ length }, (_, n) => at(n) % 9),
  bool: (length, at) => Uint8Array.from({ length }, (_, n) => at(n) % 2),
};

/** @param {Ort} ort @param {Small} small @param {number} run its number */
function feedsOf(ort, { inputs, sizes }, run) {
  /** @type {Record<string, number>} */
  const dim = { N: sizes[run], M: sizes[run] + 1 };
  /** Of conditions, which change from run to run, and of loops. @type {Record<string, number>} */
  const own = { c: run, go: 1, n: 2 + run % 2 };
  return Object.fromEntries(Object.entries(inputs).map(([name, [type, given]]) => {
    const dims = given.map((d) => (typeof d === 'number' ? d : dim[d]));
    const seed = dims.length ? run + 3 : 0;
    const at = (/** @type {number} */ n) => (name in own && type !== 'float32' ? own[name] : n * 7 + seed);
    return [name, new ort.Tensor(type, ARRAYS[type](dims.reduce((product, n) => product * n, 1), at), dims)];
  }));
}

/** @param {Tensor} tensor @returns {number[]} */
const numbers = ({ type, data }) => Array.from(/** @type {ArrayLike<number | bigint>} */ (data), (value) => (type === 'float16' && data instanceof Uint16Array ? half(Number(value)) : Number(value)));
/** @param {number} bits */
const half = (bits) => (bits & 0x8000 ? -1 : 1) * (bits & 0x7c00 ? (1024 + (bits & 1023)) * 2 ** ((bits >> 10 & 31) - 25) : (bits & 1023) * 2 ** -24);

/** @param {Tensors} a @param {Tensors} b */
const isEqual = (a, b) => Object.keys(b).every((name) => {
  const [x, y] = [numbers(a[name]), numbers(b[name])];
  const tolerance = (b[name].type === 'float16' ? 1e-2 : 1e-4) * Math.max(1, ...y.filter(Number.isFinite).map(Math.abs));
  return x.length === y.length && x.every((value, n) => Object.is(value, y[n]) || Math.abs(value - y[n]) <= tolerance);
});

class Check {
  /** @param {Ort} ort @param {Record<string, unknown>} options of the provider @param {number} limit ms of one call */
  constructor(ort, options, limit) {
    this.ort = ort;
    this.options = options;
    this.limit = limit;
    this.name = '';
    this.id = Math.random().toString(36).slice(2);
    /** @type {Map<string, string>} */
    this.found = new Map();
    /** @type {Set<string>} */
    this.taken = new Set();
    this.case = '';
    this.channel = new BroadcastChannel(`provider check ${this.id}`);
    this.answered = () => {};
    this.channel.onmessage = ({ data: [member, fault, detail] }) => {
      if (fault === 'heard') this.answered();
      else if (fault === 'takes') this.taken.add(detail);
      else this.add(member, fault, detail);
    };
  }

  /** @param {string} member @param {string} fault @param {string} [detail] */
  add(member, fault, detail = '') {
    const key = `${member} ${fault}`;
    if (!this.found.has(key)) this.found.set(key, `${key} (${this.case}${detail && `: ${detail}`}). ${ADVICE[fault]}`);
  }

  /** What a call resolves to; undefined if it fails. @template T @param {(signal: AbortSignal) => Promise<T>} work */
  async ended(work) {
    try {
      return await work(AbortSignal.timeout(this.limit));
    } catch (error) {
      const { name, message } = /** @type {Error} */ (error);
      if (name === 'InvalidInput') throw error;
      await this.heard();
      if (name === 'TimeoutError') this.add('the provider', 'does not end', `${this.limit / 1000} s`);
      else if (!this.found.size) this.add('the provider', 'fails', message);
      return undefined;
    }
  }

  /** Waits for all that the worker has told until now. @returns {Promise<void>} */
  heard() {
    return new Promise((resolve) => {
      const before = this.answered;
      const end = setTimeout(resolve, this.limit);
      this.answered = () => {
        before();
        clearTimeout(end);
        resolve();
      };
      this.channel.postMessage('');
    });
  }

  /** @param {string} bytes base64 @param {string} [check] */
  session(bytes, check = '') {
    const model = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));
    const executionProviders = check === 'wasm' ? ['wasm'] : [{ name: this.name, ...this.options, check }, 'wasm'];
    return this.ended((signal) => this.ort.InferenceSession.create(model, { executionProviders, signal, logSeverityLevel: 4 }));
  }

  /** @param {Session} session @param {Small} small @param {Tensors[]} expected @param {string} fault @param {number[]} [order] of the runs */
  async compare(session, small, expected, fault, order = [...expected.keys()]) {
    for (const n of order) {
      if (this.found.size) return;
      const results = await this.ended((signal) => session.run(feedsOf(this.ort, small, n), { signal }));
      await this.heard();
      if (results && !this.found.size && !isEqual(results, expected[n])) this.add('job', fault);
    }
  }

  /** Checks a model, and with a new kind of kernels the lives of sessions. @param {Small} small */
  async model(small) {
    const kinds = this.taken.size;
    const [wasm, one] = [await this.session(small.model, 'wasm'), await this.session(small.model)];
    if (!one || !wasm) return;
    const expected = [];
    for (const n of small.sizes.keys()) expected.push(await wasm.run(feedsOf(this.ort, small, n)));
    await this.compare(one, small, expected, 'computes other values than WebAssembly');
    if (this.found.size) return;
    const [moved] = (await one.explain()).moved;
    if (moved) this.add('the provider', 'fails', moved.reason);
    else if (this.taken.size > kinds) await this.lives(small, expected);
    await Promise.all([wasm.release(), one.release()]);
  }

  /** Several sessions at once, of which one ends, and jobs that fail. @param {Small} small @param {Tensors[]} expected */
  async lives(small, expected) {
    const [one, other, failing] = [await this.session(small.model, 'values'), await this.session(small.model, 'values'), await this.session(small.model, 'failing')];
    if (!one || !other || !failing) return;
    const several = 'computes other values with several sessions';
    const order = [...expected.keys(), ...expected.keys()];
    await Promise.all([this.compare(one, small, expected, several, order), this.compare(other, small, expected, several, order.toReversed())]);
    if (this.found.size) return;
    await other.release();
    await this.compare(one, small, expected, 'ends other sessions, too');
    const [moved] = (await one.explain()).moved;
    if (this.found.size || moved) {
      this.found.clear();
      this.add('close', 'ends other sessions, too', moved?.reason);
    } else await this.compare(failing, small, expected, 'computes other values than WebAssembly');
    await Promise.all([one.release(), failing.release()]);
  }

  /** @param {string} bytes a model @param {Record<string, unknown>} defaults of the options */
  async members(bytes, defaults) {
    for (const [key, value] of Object.entries(defaults)) {
      if (['string', 'number', 'boolean'].includes(typeof value)) continue;
      const executionProviders = [{ name: this.name, ...this.options, [key]: 'any text' }, 'wasm'];
      const session = await this.ort.InferenceSession.create(Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)), { executionProviders }).catch(() => null);
      if (session) this.add('options', 'accept values of any type', key);
      await session?.release();
    }
  }
}

/**
 * Checks the provider that a module exports. models: by name, of `provider_models.json` beside this file; limit: milliseconds of a call.
 * Rejects with InvalidInput if it cannot be checked.
 * @param {Ort} ort the package @param {string | URL} module its address @param {Record<string, unknown>} [options] of the provider
 * @param {{ models?: string[], limit?: number }} [more] @returns {Promise<Result>}
 */
export async function checkProvider(ort, module, options = {}, { models, limit = 20000 } = {}) {
  const url = new URL(module, globalThis.location?.href ?? import.meta.url).href;
  const check = new Check(ort, options, limit);
  const all = await smallModels();
  try {
    const own = new URL(import.meta.url);
    own.search = new URLSearchParams({ of: url, id: check.id }).toString();
    check.name = await ort.registerProvider(own);
    const { default: given } = await import(/* webpackIgnore: true */ /* @vite-ignore */ url);
    check.case = 'without a run';
    if (given.runStart && !given.runEnd) check.add('runEnd', 'is not written, but runStart is');
    await check.members(all.product.model, given.options ?? {});
    for (const [name, small] of Object.entries(all)) {
      if (models && !models.includes(name) || check.found.size) continue;
      check.case = name;
      await check.model(small);
    }
    check.case = `${models?.length ?? Object.keys(all).length} models`;
    if (!check.taken.size && !check.found.size) check.add('supports', 'takes no kernel of these models');
    return { findings: [...check.found.values()], taken: [...check.taken].sort() };
  } finally {
    check.channel.close();
  }
}

/** @returns {Promise<Record<string, Small>>} */
async function smallModels() {
  const file = new URL('provider_models.json', import.meta.url);
  if (file.protocol !== 'file:') return (await fetch(file)).json();
  const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ 'node:fs/promises');
  return JSON.parse(await readFile(file, 'utf8'));
}

/** @param {string[]} given */
async function main([module, ...options]) {
  const ort = await import(new URL('ort.node.mjs', import.meta.url).href);
  const { pathToFileURL } = await import(/* webpackIgnore: true */ /* @vite-ignore */ 'node:url');
  try {
    const file = module.includes('://') ? module : pathToFileURL(module);
    const { findings, taken } = await checkProvider(ort, file, Object.fromEntries(options.map((text) => text.split('='))));
    for (const text of findings) console.log(text);
    console.log(`Findings: ${findings.length}. Kernels that it compiled: ${taken.join(', ') || 'none'}`);
    return findings.length ? 1 : 0;
  } catch (error) {
    console.log(`${module} cannot be checked: ${/** @type {Error} */ (error).message}`);
    return 2;
  }
}

const { argv, exit } = /** @type {{ process?: { argv: string[], exit(code: number): void } }} */ (/** @type {unknown} */ (globalThis)).process ?? {};
if (!address && argv?.[1] && argv[2] && import.meta.url.endsWith(argv[1].replaceAll('\\', '/').split('/').pop() ?? '')) exit?.(await main(argv.slice(2)));

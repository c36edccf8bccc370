// Runs a combination of features (kit/feature_table.py) in a page or in a worker of its own: tasks are those of kit/row_tasks.py.

import * as ort from '/dist/ort.mjs';
import { Batcher, TextGenerator } from '/dist/extras.mjs';

const STATIC = 32; // kit/counting_decoders.py
const EMPTY = { 'growing caches': [1, 1, 0, 1], 'static caches': [1, 1, STATIC, 1], states: [1, 1] };
const PROVIDERS = { wasm: ['wasm'], webgpu: ['webgpu'], both: ['webgpu', 'wasm'], auto: ['auto'] };

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const base64 = (data) => btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join(''));
const floats = (rows) => new ort.Tensor('float32', Float32Array.from(rows.flat()), [rows.length, rows[0].length]);
const integers = (values, dims) => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), dims);
const failure = (promise) => promise.then(() => null, (error) => error);
const zeros = (dims) => new ort.Tensor('float32', new Float32Array(dims.reduce((a, b) => a * b, 1)), dims);

let faults;

/** Causes faults of the GPU here and in the engine's worker (gpu_faults.js). */
async function fault(code) {
  faults ??= await (await fetch('/gpu_faults.js')).text();
  const install = `globalThis.inject ?? (() => {${faults}})();`;
  const inWorker = `__import__("js").eval(args["code"]) and None`;
  (0, eval)(install);
  await ort.python(inWorker, { code: install });
  (0, eval)(code);
  await ort.python(inWorker, { code });
  await new Promise((resolve) => setTimeout(resolve, 100));
}

class FeatureRow {
  constructor(task) {
    this.task = task;
    this.row = task.row;
    this.ends = [];
    this.events = [];
  }

  has(feature) {
    return Object.values(this.row).includes(feature);
  }

  /** The results of the two halves. */
  async run() {
    const { task: { active } } = this;
    this.runOptions = Object.keys(active).length ? { adapters: active } : {};
    if (this.has('lost devices') || this.has('refused shaders')) await fault('');
    if (this.has('refused shaders')) await fault("inject('refused shaders', 'creation', 0)");
    if (this.has('metrics and events')) this.ends.push(ort.on('session', ({ type }) => this.events.push(type)));
    try {
      const found = [];
      for await (const half of this[this.row.caller]()) found.push(half);
      return found;
    } finally {
      for (const end of this.ends.reverse()) await end();
      if (this.has('refused shaders')) await fault('heal()');
    }
  }

  // ── sessions ──

  options() {
    const { task, row } = this;
    const disabled = row.model === 'cached Program' ? undefined : { session: { disable_program_cache: '1' } };
    const files = Object.fromEntries(Object.entries(task.adapters).map(([name, data]) => [name, bytes(data)]));
    return {
      executionProviders: PROVIDERS[row.provider],
      extra: disabled,
      ...this.has('outputs on the GPU') && { preferredOutputLocation: 'gpu-buffer' },
      ...this.has('memory limits') && { memoryLimit: 64 * 2 ** 20 },
      ...this.has('time-outs') && { compileTimeLimit: 60, gpuTimeout: 30 },
      ...row.caller !== 'training' && Object.keys(files).length && { adapters: files },
    };
  }

  async opened(more = {}) {
    const { task, row } = this;
    const model = bytes(task.program ?? task.model);
    const external = row.model === 'Program without weights' && { externalData: [{ path: 'model.onnx', data: bytes(task.model) }] };
    const options = { ...this.options(), ...external, ...task.program ? {} : more };
    if (row.model === 'cached Program') await (await ort.InferenceSession.create(model, options)).release();
    const session = await ort.InferenceSession.create(model, options);
    this.ends.push(() => session.release());
    if (this.has('several sessions')) {
      const other = await ort.InferenceSession.create(bytes(task.model), { executionProviders: PROVIDERS[row.provider] });
      this.ends.push(() => other.release());
      this.others(() => other.run(this.firstFeeds()));
    }
    return session;
  }

  /** Lets another session work until the end. */
  others(work) {
    let isEnded = false;
    const repeat = async () => {
      while (!isEnded) {
        await work();
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    };
    const done = repeat().catch((error) => {
      if (error.type !== 'SessionFailed' || !this.has('lost devices')) throw error; // as training does then
    });
    this.ends.push(() => { isEnded = true; return done; });
  }

  firstFeeds() {
    return this.task.decodes ? this.decoderFeeds([1, 2], 0, this.empty()) : { x: floats(this.task.feeds[0]) };
  }

  /** What happens between the halves. run: with a signal that stops it */
  async between(session, run) {
    if (this.has('stops')) {
      const controller = new AbortController();
      const error = failure(run({ signal: controller.signal }));
      controller.abort();
      if (!(await error instanceof ort.Terminated)) throw new Error(`a stopped run ended with ${await error}`);
    }
    if (this.has('trim')) await session.trim();
    if (this.has('lost devices')) await fault("inject('lost', 'between', 1)");
  }

  async watched(session, ...types) {
    if (!this.has('metrics and events')) return;
    const { runs, failed } = await session.metrics();
    if (!runs || failed > this.has('lost devices')) throw new Error(`${runs} runs, ${failed} failed`);
    for (const type of ['created', ...types]) if (!this.events.includes(type)) throw new Error(`no event "${type}"`);
  }

  // ── callers ──

  async* runs() {
    const session = await this.opened();
    const run = (feeds, options) => session.run(feeds, { ...this.runOptions, ...options });
    yield* this.task.decodes ? this.decoding(session, 1, run) : this.plain(session, run);
    await this.watched(session, 'run');
  }

  async* Batcher() {
    const session = await this.opened();
    const batcher = new Batcher(session, { size: 8, wait: 5 });
    this.ends.push(() => batcher.close());
    const run = (feeds, options) => batcher.run(feeds, { ...this.runOptions, ...options });
    yield* this.task.decodes ? this.decoding(session, 2, run) : this.plain(session, run);
    await this.watched(session, 'run');
  }

  async* plain(session, run) {
    const { feeds } = this.task;
    const all = () => Promise.all(feeds.map(async (rows) => {
      const { y } = await run({ x: floats(rows) });
      const data = await y.getData();
      return rows.map((_, n) => Array.from(data.subarray(n * y.dims[1], (n + 1) * y.dims[1])));
    }));
    yield await all();
    await this.between(session, (options) => run(this.firstFeeds(), options));
    yield await all();
  }

  async* TextGenerator() {
    const { active, tokenizer } = this.task;
    const session = await this.opened(TextGenerator.options());
    const adapters = Object.keys(active).length ? active : undefined;
    const writer = await TextGenerator.create(session, { tokenizer: new TextEncoder().encode(tokenizer), adapters });
    yield* this.has('several chats') && !this.has('beams') ? this.streams(session, writer) : this.texts(session, writer);
    await this.watched(session, 'run');
  }

  /** Whole texts, of which the second half is a further turn. */
  async* texts(session, writer) {
    const { prompts, tokens: [first, more], format, beams: numBeams } = this.task;
    const write = async (texts, settings) => (await writer.generate(texts, { format, numBeams, ...settings })).map(({ tokens }) => tokens);
    const begun = prompts.slice(0, this.has('several chats') ? 2 : 1);
    const found = await write(begun, { maxTokens: first });
    yield found;
    await this.between(session, (options) => write([prompts[1]], { maxTokens: 4, ...options }));
    yield await write(begun.map((prompt, n) => [...prompt, ...found[n]]), { maxTokens: more });
  }

  /** Texts that take turns, and share caches between the halves. */
  async* streams(session, writer) {
    const { prompts, tokens: [first, more], format, letter } = this.task;
    const streams = prompts.map((prompt) => writer.stream(prompt, { maxTokens: first + more, format }));
    const turns = async (count) => {
      const found = prompts.map(() => []);
      for (let n = 0; n < count; n++) {
        const pieces = await Promise.all(streams.map((stream) => stream.next()));
        pieces.forEach(({ value }, text) => found[text].push(value.codePointAt(0) - letter));
      }
      return found;
    };
    yield await turns(first);
    await this.between(session, (options) => writer.generate(prompts[1], { maxTokens: 4, format, ...options }));
    yield await turns(more);
  }

  // ── decoders ──

  empty() {
    return zeros(EMPTY[this.row.caches]);
  }

  decoderFeeds(tokens, at, past) {
    return {
      input_ids: integers(tokens, [1, tokens.length]),
      [this.has('states') ? 'past_state.0' : 'past_key_values.0.key']: past,
      ...this.has('static caches') && { cache_position: integers(tokens.map((_, n) => at + n), [tokens.length]) },
    };
  }

  async* decoding(session, count, run) {
    const { prompts, tokens: [first, more] } = this.task;
    const texts = prompts.slice(0, count).map((prompt) => ({ tokens: [...prompt], cached: 0, past: this.empty() }));
    yield await Promise.all(texts.map((text) => this.write(text, first, run)));
    await this.between(session, (options) => session.run(this.firstFeeds(), options));
    yield await Promise.all(texts.map((text) => this.write(text, more, run)));
  }

  async write(text, count, run) {
    const found = [];
    while (found.length < count) {
      let results;
      try {
        results = await run(this.decoderFeeds(text.tokens.slice(text.cached), text.cached, text.past));
      } catch (error) {
        if (error.type !== 'DeviceLost' || !text.cached || !this.has('lost devices')) throw error;
        Object.assign(text, { cached: 0, past: this.empty() }); // the cache was on the device
        continue;
      }
      const { logits, ...caches } = results;
      const last = (await logits.getData()).slice(-logits.dims.at(-1));
      Object.assign(text, { cached: text.tokens.length, past: Object.values(caches)[0] });
      found.push(last.indexOf(Math.max(...last)));
      text.tokens.push(found.at(-1));
    }
    return found;
  }

  // ── training ──

  async* training() {
    const { task: { model, program, lora, rate, feeds, targets }, row } = this;
    const open = async () => {
      const options = { ...this.options(), loss: { mse: 'y' }, optimizer: { sgd: { rate } }, ...lora && { lora } };
      const session = await ort.TrainingSession.create(bytes(program ?? model), options);
      this.ends.push(() => session.release());
      return session;
    };
    if (row.model === 'cached Program') await open();
    const session = await open();
    const batch = (n) => ({ x: floats(feeds[n]), target: floats(targets[n]) });
    if (this.has('several sessions')) {
      const other = await open();
      this.others(() => other.step(batch(2)));
    }
    const step = async (n) => [(await session.step(batch(n))).loss, base64(await session.export())];
    yield await step(0);
    const checkpoint = await session.state();
    await this.between(session, (options) => session.step(batch(0), options));
    try {
      yield await step(1);
    } catch (error) {
      if (error.type !== 'SessionFailed' || !this.has('lost devices')) throw error;
      await session.load(checkpoint); // the weights were on the device
      yield await step(1);
    }
    await this.watched(session, 'step');
  }
}

const run = (task) => new FeatureRow(task).run();

/** Runs a task here, or in a worker of the page's own. */
globalThis.runRow = (task) => {
  if (task.row.thread !== 'workers') return run(task);
  globalThis.ownWorker ??= new Worker(import.meta.url, { type: 'module' });
  return new Promise((resolve, reject) => {
    globalThis.ownWorker.onmessage = ({ data: { found, error } }) => (error ? reject(new Error(error)) : resolve(found));
    globalThis.ownWorker.onerror = ({ message }) => reject(new Error(message));
    globalThis.ownWorker.postMessage(task);
  });
};

/** The class of the error of a row that is refused, and the events before it. */
globalThis.tryRow = async (task) => {
  const row = new FeatureRow(task);
  const error = await failure(row.run());
  return [error?.type ?? error?.name, row.events];
};

/** The class of the error of what takes sessions, given one that trains. */
globalThis.tryTaker = async (name, model) => {
  const session = await ort.TrainingSession.create(bytes(model), { loss: { mse: 'y' } });
  const error = await failure((async () => new { Batcher, TextGenerator }[name](session))());
  await session.release();
  return error?.name;
};

if (!globalThis.document) {
  addEventListener('message', ({ data }) => run(data).then((found) => postMessage({ found }), (error) => postMessage({ error: `${error.stack}` })));
}

// Commands on generators of text.

import fc from 'fast-check';
import { Entry } from './world.js';
import { at, isAwaited, judged, stopOptions, stops } from './inference.js';
import { written } from './plain.js';


const prompts = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 });
/** A character for each token. */
const TOKENIZER = {
  encode: (text) => ({ ids: [...text].map((letter) => letter.codePointAt(0) - 0x4e00) }),
  decode: (tokens) => tokens.map((token) => String.fromCodePoint(token + 0x4e00)).join(''),
};
const textOf = (tokens) => TOKENIZER.decode(tokens);
const BUSY = ['InvalidInput']; // another call of the generator is under way, or has come since

function same(what, found, right) {
  if (`${found}` !== `${right}`) throw new Error(`${what} is ${found}, not ${right}`);
}

const create = {
  draw: fc.record({
    decoder: fc.constantFrom('sums', 'convolution', 'window', 'recurrence'), hasDraft: fc.boolean(), onGpu: fc.boolean(),
    providers: fc.constantFrom(['wasm'], ['wasm'], ['webgpu'], ['webgpu', 'wasm']),
  }),
  check: (world) => world.entries.length < 6,
  async run(world, { decoder, providers, hasDraft, onGpu }) {
    const { ort, extras: { TextGenerator }, nets } = world;
    const drafts = hasDraft && decoder === 'sums' ? 2 : null;
    const entry = new Entry('text', null, { providers });
    if (world.fault) entry.excuse(world.fault);
    const open = async (options) => ort.InferenceSession.create(nets[`decoder ${decoder}`].model, {
      ...options, executionProviders: providers, ...onGpu && providers[0] === 'webgpu' && { preferredOutputLocation: 'gpu-buffer' } });
    const make = async () => {
      const session = await open(TextGenerator.options(drafts ? { draftTokens: drafts } : null));
      const draft = drafts ? await open(TextGenerator.options()) : null;
      const writer = new TextGenerator(session, { tokenizer: TOKENIZER, draft, draftTokens: drafts, inputs: null, stopTokens: null });
      const release = async () => {
        await session.release();
        await draft?.release();
      };
      return Object.assign(writer, { release });
    };
    await world.call(`create text ${decoder}`, entry, make, judged((writer) => {
      Object.assign(entry, { object: writer, decoder, streams: [] });
      world.entries.push(entry);
    }));
  },
};

/** Whether another call of a generator may refuse this one, or be refused by it. */
const isBusy = (world, entry) => world.pending.some((call) => call.entry === entry);

const generate = {
  draw: fc.record({ at, prompt: prompts, count: fc.integer({ min: 1, max: 6 }), stop: stops, isText: fc.boolean(), isAwaited }),
  check: (world) => world.has('text'),
  async run(world, { at: n, prompt, count, stop, isText, isAwaited: awaited }) {
    const entry = world.pick('text', n);
    const { given, must, may, after } = stopOptions(stop);
    const { signal } = given ?? {};
    const settings = { maxTokens: count, temperature: null, topK: null, topP: null, repetitionPenalty: null, seed: null, stop: null, signal };
    const right = written(entry.decoder, prompt, count);
    const collides = isBusy(world, entry);
    for (const call of world.pending) if (call.entry === entry && call.refuse) call.refuse();
    const allowed = { must: must && !collides ? 'Terminated' : '', may: [...may ? ['Terminated'] : [], ...collides ? BUSY : []] };
    const judge = judged(({ tokens }) => same('the text', tokens, right), allowed);
    await world.call('generate', entry, () => entry.object.generate(isText ? textOf(prompt) : prompt, settings), judge, false);
    Object.assign(world.pending.at(-1), { refuse: () => allowed.may.push(...BUSY) });
    after?.();
    if (awaited) await world.settle();
  },
};

/** Reads some pieces of a stream, then drops it, ends it, or goes on with it later. */
const stream = {
  draw: fc.record({ at, prompt: prompts, count: fc.integer({ min: 1, max: 6 }), pieces: fc.nat(4), end: fc.constantFrom('drop', 'return', 'keep') }),
  check: (world) => world.has('text'),
  async run(world, { at: n, prompt, count, pieces, end }) {
    await world.settle();
    const entry = world.pick('text', n);
    const iterator = entry.object.stream(prompt, { maxTokens: count });
    const right = textOf(written(entry.decoder, prompt, count));
    let found = '';
    const next = async () => {
      for (let piece = 0; piece < pieces; piece++) {
        const { done, value } = await iterator.next();
        if (done) return;
        found += value;
      }
    };
    await world.call('stream', entry, next, judged(() => same('the beginning', found, right.slice(0, found.length))));
    if (end === 'return') await world.call('return', entry, () => iterator.return(), judged(() => {}));
    if (end === 'keep') entry.streams.push({ iterator, rest: right.slice(found.length) });
  },
};

/** Goes on with a stream that other calls have overtaken, or not. */
const goOn = {
  draw: fc.record({ at, isAwaited }),
  check: (world, { at: n }) => world.has('text') && world.pick('text', n).streams.length > 0,
  async run(world, { at: n, isAwaited: awaited }) {
    await world.settle();
    const entry = world.pick('text', n);
    const { iterator, rest } = entry.streams.shift();
    let found = '';
    const read = async () => {
      for await (const piece of iterator) found += piece;
    };
    await world.call('the rest of a stream', entry, read, judged(() => same('the rest', rest.endsWith(found), true), { may: BUSY }), awaited);
  },
};

const WRONG = {
  'no tokens': [[]], nothing: [], null: [null], 'a wrong setting': [[1], { none: 1 }], 'wrong settings': [[1], 5],
  'a wrong number': [[1], { maxTokens: -1 }],
};
const wrong = {
  draw: fc.record({ at, how: fc.constantFrom(...Object.keys(WRONG)), isAwaited }),
  check: (world) => world.has('text'),
  async run(world, { at: n, how, isAwaited: awaited }) {
    const entry = world.pick('text', n);
    await world.call(`generate with ${how}`, entry, () => entry.object.generate(...WRONG[how]), judged(() => {}, { must: 'InvalidInput' }), awaited);
  },
};

/** Several prompts of one length together. */
const together = {
  draw: fc.record({ at, first: fc.integer({ min: 1, max: 9 }), count: fc.integer({ min: 1, max: 4 }) }),
  check: (world, { at: n }) => world.has('text') && world.pick('text', n).decoder !== 'recurrence',
  async run(world, { at: n, first, count }) {
    await world.settle();
    const entry = world.pick('text', n);
    const given = [[first, 2], [3, first]];
    const judge = judged((found) => found.forEach(({ tokens }, i) => same('a text', tokens, written(entry.decoder, given[i], count))));
    await world.call('generate together', entry, () => entry.object.generate(given, { maxTokens: count }), judge);
  },
};

/** Also while a text is written. */
const reset = {
  draw: fc.record({ at }),
  check: (world) => world.has('text'),
  async run(world, { at: n }) {
    world.pick('text', n).object.reset();
  },
};

export const text = { create, generate, stream, goOn, wrong, together, reset };

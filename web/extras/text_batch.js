// Texts that one generator writes at the same time: one run of the model reads a token of each (docs/adr/0070).

import { AHEAD, Waiting, sharedFeeds, sharedGroups } from '../runtime/writing.js';

/** @typedef {import('./decoder.js').Decoder} Decoder */
/** @typedef {import('./decoder.js').Caches} Caches */
/** @typedef {import('./decoder.js').Tensor} Tensor */
/** @typedef {import('../runtime/writing.js').Request} Request */
/** @typedef {import('../runtime/writing.js').Text} Text */
/** @typedef {{ chats: Chat[], pasts: Record<string, Tensor> }} Shared caches of several texts, a row for each */

/** A text that is being written. */
export class Chat {
  /** Pieces that nobody has read. @type {string[]} */
  pieces = [];
  /** Its next run, null if it is complete or has failed. @type {Request | null} */
  request = null;
  /** @type {unknown} */
  error = undefined;
  isBegun = false;
  isClosed = false;
  /** Tokens in its caches. */
  read = 0;
  /** For each decoder, if other texts use the decoders meanwhile. @type {Caches[] | null} */
  caches = null;
  /** @type {Shared | null} */
  shared = null;

  /**
   * @param {Text} text @param {import('../runtime/writing.js').Writer | import('../runtime/beams.js').BeamWriter} writer @param {import('../runtime/writing.js').Sampling} how
   * @param {() => Promise<void>} begin gives the model this text's own inputs, before its first run
   * @param {boolean} isWhole whether nobody reads it before it is complete @param {AbortSignal | undefined} signal
   */
  constructor(text, writer, how, begin, isWhole, signal) {
    this.text = text;
    this.writer = writer;
    this.how = how;
    this.begin = begin;
    this.isWhole = isWhole;
    this.signal = signal;
    this.proceed(null, []);
  }

  /** Adds the tokens of a run, and finds the next one. @param {Request | null} request @param {number[]} sampled */
  proceed(request, sampled) {
    if (request) {
      this.read = request.tokens.length;
      for (const token of this.writer.accepted(request, sampled)) {
        const piece = this.text.add(token);
        if (piece) this.pieces.push(piece);
        if (this.text.isEnded) break;
      }
    }
    this.request = this.writer.request();
    const rest = this.request ? '' : this.text.end();
    if (rest) this.pieces.push(rest);
  }

  /** @param {unknown} error */
  fail(error) {
    this.error = error;
    this.request = null;
  }
}

/** The texts that one generator writes now. Who needs a piece of one runs the model, for all of them; others wait. */
export class TextBatch {
  /** @type {Chat[]} */
  chats = [];
  /** The text whose caches the decoders have; null: those of the last text that ended. @type {Chat | null} */
  current = null;
  /** The text whose inputs and caches the decoders have. @type {Text | null} */
  held = null;
  /** Ends with the work that has the decoders. @type {Promise<void> | null} */
  busy = null;

  /** @param {Decoder[]} decoders the model, and its draft if any @param {(error: unknown) => unknown} told an error of a run as the caller gets it */
  constructor(decoders, told) {
    this.decoders = decoders;
    this.told = told;
  }

  /** Runs the model until the text is complete, or has a piece that somebody reads. Throws the error of its run. @param {Chat} chat */
  async advance(chat) {
    const isNeeded = () => chat.request !== null && (chat.isWhole || !chat.pieces.length);
    while (isNeeded()) await this.turn(() => this.round(chat), isNeeded);
    if (chat.error && (chat.isWhole || !chat.pieces.length)) throw chat.error;
  }

  /**
   * Does work with the decoders, after that of others. isNeeded: whether it still must be done
   * @template T @param {() => Promise<T>} work @returns {Promise<T | undefined>}
   */
  async turn(work, isNeeded = () => true) {
    while (this.busy && isNeeded()) await this.busy;
    if (!isNeeded()) return undefined;
    let end = () => {};
    this.busy = new Promise((resolve) => { end = resolve; });
    try {
      await this.sweep();
      return await work();
    } finally {
      this.busy = null;
      end();
    }
  }

  /** Lets the decoders have the caches of this text, if it is being written; else of no such text. In a turn. @param {Text | null} text */
  async enterText(text) {
    const found = this.chats.find((chat) => chat.text === text);
    if (found) await this.enter(found);
    else this.park();
  }

  /** Lets the decoders have caches of this text alone, or none. In a turn. @param {Text} text */
  async own(text) {
    await this.enterText(text);
    if (this.held !== text) this.restart();
    for (const decoder of this.decoders) await decoder.trim(text.soFar());
  }

  /** Forgets texts that are complete, have failed or are not read any more. */
  async sweep() {
    const ended = this.chats.filter(({ isClosed, request }) => isClosed || !request);
    if (!ended.length) return;
    this.chats = this.chats.filter((chat) => !ended.includes(chat));
    await this.freeing([...this.chats, ...ended], async () => {
      if (this.current && ended.includes(this.current)) this.current = null;
      else if (!this.current) await this.keep(ended.filter(({ error }) => !error));
      for (const chat of ended) chat.caches = chat.shared = null;
    });
  }

  /** Keeps the caches of one of these texts for the next one that begins alike, if that costs little. @param {Chat[]} ended */
  async keep(ended) {
    const alone = ended.filter(({ shared }) => !shared?.chats.some((chat) => this.chats.includes(chat)));
    try {
      if (alone.length) await this.enter(alone[alone.length - 1]);
    } catch {
      this.restart(); // the memory, or the GPU, is lost
    }
    this.current = null;
  }

  /** One run for each text that goes on; those that can, share it. @param {Chat} asking */
  async round(asking) {
    const isNext = (/** @type {Chat} */ chat) => chat.request && (chat === asking || chat.isWhole || chat.pieces.length < AHEAD);
    const chats = this.chats.filter(isNext);
    const waiting = chats.map(({ request, read, how, signal }) => new Waiting(/** @type {Request} */ (request), read, how, signal?.aborted));
    for (const group of sharedGroups(this.decoders[0].layout, waiting)) await this.run(group.map((n) => chats[n]));
    await this.sweep();
  }

  /** @param {Chat[]} chats those that can share a run */
  async run(chats) {
    if (chats.length > 1 && await this.share(chats)) return;
    for (const chat of chats) await this.alone(chat);
  }

  /** @param {Chat} chat */
  async alone(chat) {
    const { request, text, how, signal } = chat;
    if (!request) return;
    try {
      await this.enter(chat);
      if (!chat.isBegun) {
        await chat.begin();
        text.reused = this.decoders[0].kept(text.soFar(), 1);
        chat.isBegun = true;
      }
      this.held = text;
      chat.proceed(request, await this.decoders[request.ofDraft ? this.decoders.length - 1 : 0].sample(request, how, signal));
      if (request.beams.length && !chat.request) await this.decoders[0].narrow(request.tokens);
    } catch (error) {
      chat.fail(this.told(error));
    }
  }

  /** A run for several texts. False if it fails: then each reads its tokens again, so that only the text at fault ends. @param {Chat[]} chats */
  async share(chats) {
    const [model] = this.decoders;
    const requests = chats.flatMap(({ request }) => request ?? []);
    /** @type {number[]} */
    let found;
    try {
      const shared = await this.gathered(chats);
      found = await model.runShared(sharedFeeds(model.layout, requests, chats[0].how), shared);
    } catch {
      await this.freeing(this.chats, async () => {
        for (const chat of chats) Object.assign(chat, { shared: null, read: 0 });
      });
      return false;
    }
    for (const [n, chat] of chats.entries()) {
      try {
        chat.proceed(requests[n], [found[n]]);
      } catch (error) {
        chat.fail(this.told(error));
      }
    }
    return true;
  }

  /** The caches of just these texts. @param {Chat[]} chats @returns {Promise<Shared>} */
  async gathered(chats) {
    const { shared } = chats[0];
    if (shared?.chats.length === chats.length && chats.every((chat, n) => chat.shared === shared && shared.chats[n] === chat)) return shared;
    this.park();
    return this.freeing(this.chats, async () => {
      const pasts = await this.decoders[0].stacked(chats.map((chat) => rowOf(chat)));
      const made = { chats, pasts };
      for (const chat of chats) Object.assign(chat, { shared: made, caches: null });
      return made;
    });
  }

  /** Lets the decoders have the caches of this text. A text that begins continues those of the last one. @param {Chat} chat */
  async enter(chat) {
    if (this.current === chat) return;
    const { shared, caches } = chat;
    if (this.current) this.park();
    else if (shared || caches) this.restart();
    await this.freeing(this.chats, async () => {
      const [model] = this.decoders;
      if (shared) model.restore(chat.text.soFar().slice(0, chat.read), await model.stacked([rowOf(chat)]));
      else caches?.forEach((one, n) => this.decoders[n].put(one));
      if (shared || caches) this.held = chat.text;
      Object.assign(chat, { shared: null, caches: null });
      this.current = chat;
    });
  }

  /** Gives the text that has the decoders caches of its own. */
  park() {
    if (this.current) {
      this.current.caches = this.decoders.map((decoder) => decoder.take());
      this.held = null;
    }
    this.current = null;
  }

  restart() {
    this.held = null;
    for (const decoder of this.decoders) decoder.restart();
  }

  /**
   * Does work, and frees tensors on the GPU that neither these texts nor the decoders use afterwards.
   * @template T @param {Chat[]} chats @param {() => Promise<T>} work
   */
  async freeing(chats, work) {
    const all = () => [...this.decoders, ...chats.flatMap(({ caches }) => caches ?? [])];
    const givens = () => all().flatMap(({ given }) => Object.values(given));
    const used = () => new Set([...all().flatMap(({ pasts, saved }) => [pasts, saved.pasts]), ...chats.map(({ shared }) => shared?.pasts ?? {})].flatMap((tensors) => Object.values(tensors)));
    const [before, given] = [used(), givens()]; // what was given is not ours to free
    try {
      return await work();
    } finally {
      const after = new Set([...used(), ...given, ...givens()]);
      for (const tensor of before) if (tensor.location === 'gpu-buffer' && !after.has(tensor)) tensor.dispose();
    }
  }
}

/** @param {Chat} chat @returns {import('./decoder.js').Row} */
const rowOf = (chat) => {
  const { shared, caches, read } = chat;
  return { pasts: shared?.pasts ?? caches?.[0].pasts ?? {}, row: shared?.chats.indexOf(chat) ?? 0, count: read };
};

// The engine for several pages: they call one engine, which numbers all calls. When a page ends, its calls are stopped and its sessions
// released.

import { lifelineEnds } from '../common/lifeline.js';

/** @import { Held, Message, OpenParams, PageMemory, Reply, Request } from '../common/protocol.js' */
/**
 * port: to the page; open: its number of the call `open`; memory: its limits; sessions: its own.
 * @typedef {{ port: MessagePort, open: number, memory: PageMemory, sessions: Set<number>, isGone: boolean }} Page
 */
/** page: null if no page waits for the result; id: its number of the call. @typedef {{ page: Page | null, id: number, call: Request['call'] }} Call */

const KINDS = /** @type {const} */ (['linear', 'gpu']);

export class PageRouter {
  /** @type {Map<MessagePort, Page>} */
  pages = new Map();
  /** By the engine's numbers. @type {Map<number, Call>} */
  calls = new Map();
  next = 1;
  /** The engine sets it. @type {((event: { data: Message }) => void) | null} */
  onmessage = null;

  /** @param {(port: MessagePort) => void} startEngine */
  constructor(startEngine) {
    startEngine(/** @type {MessagePort} */ (/** @type {unknown} */ (this)));
  }

  /** A message from a page. @param {MessagePort} port @param {Message | { leave: true }} message */
  take(port, message) {
    const page = this.pages.get(port);
    if ('call' in message && message.call === 'open') this.open(port, message);
    else if (!page) return; // it has left
    else if ('leave' in message) this.leave(page);
    else if ('stop' in message && !('call' in message)) this.stop(page, message.stop);
    else if ('call' in message) this.forward(page, message);
  }

  /** @param {MessagePort} port @param {Request} request */
  open(port, request) {
    const { tab, memory } = /** @type {OpenParams} */ (request.params);
    /** @type {Page} */
    const page = { port, open: request.id, memory, sessions: new Set(), isGone: false };
    this.pages.set(port, page);
    lifelineEnds(tab).then(() => this.leave(page));
    if (this.next === 1) this.send(null, request);
    else this.limitMemory();
  }

  /** @param {Page} page @param {Request} request */
  forward(page, request) {
    if (request.call === 'release') page.sessions.delete(/** @type {{ session: number }} */ (request.params).session);
    if (request.call !== 'memoryLimits') return this.send(page, { ...request, stop: request.stop ?? { interrupt: null } }); // the page may end
    page.memory = /** @type {PageMemory} */ (request.params);
    this.limitMemory();
  }

  /** @param {Page | null} page @param {Request} request */
  send(page, request) {
    const id = this.next++;
    this.calls.set(id, { page, id: request.id, call: request.call });
    this.onmessage?.({ data: { ...request, id } });
  }

  /** Tells the engine the limits of the page that leaves the least room. */
  limitMemory() {
    const params = { limits: { linear: Infinity, gpu: Infinity }, elsewhere: { linear: 0, gpu: 0 } };
    for (const { memory: { limits, elsewhere } } of this.pages.values()) {
      for (const kind of KINDS) {
        if (limits[kind] - elsewhere[kind] >= params.limits[kind] - params.elsewhere[kind]) continue;
        params.limits[kind] = limits[kind];
        params.elsewhere[kind] = elsewhere[kind];
      }
    }
    this.send(null, { id: 0, call: 'memoryLimits', params });
  }

  /** Stops a call of a page, or all. @param {Page} page @param {number} [number] */
  stop(page, number) {
    for (const [id, call] of this.calls) {
      if (call.page === page && (number ?? call.id) === call.id) this.onmessage?.({ data: { stop: id } });
    }
  }

  /** @param {Page} page */
  leave(page) {
    if (!this.pages.delete(page.port)) return;
    page.isGone = true;
    this.stop(page);
    this.free(page);
    this.limitMemory();
  }

  /** Releases the sessions of a page. @param {Page} page */
  free(page) {
    for (const session of page.sessions) this.send(null, { id: 0, call: 'release', params: { session } });
    page.sessions.clear();
  }

  /** A message of the engine. @param {Reply} reply @param {Transferable[]} [transfer] */
  postMessage(reply, transfer = []) {
    if ('held' in reply) return this.pages.forEach(({ port }) => port.postMessage(reply));
    if ('memory' in reply) return; // pages share no memory with this worker
    const { page, id, call } = /** @type {Call} */ (this.calls.get(reply.id));
    if (!('progress' in reply)) this.calls.delete(reply.id);
    if (call === 'open') return this.fail(reply);
    if (page && 'result' in reply) this.note(page, call, reply.result);
    if (page && !page.isGone) page.port.postMessage({ ...reply, id }, transfer);
  }

  /** @param {Page} page @param {Request['call']} call @param {unknown} result */
  note(page, call, result) {
    if (call === 'create' || call === 'moveToPage') page.sessions.add(/** @type {{ session: number }} */ (result).session);
    if (page.isGone) this.free(page);
  }

  /** The engine could not start: the next page starts another worker. @param {Reply} reply */
  fail(reply) {
    for (const { port, open } of this.pages.values()) port.postMessage({ ...reply, id: open });
    globalThis.close();
  }
}

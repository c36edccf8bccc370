// An engine that several pages call: whose calls and sessions are whose.

import assert from 'node:assert/strict';
import { afterEach, before, test } from 'node:test';
import { answer, Caller } from '../../web/common/protocol.js';
import { PageRouter } from '../../web/worker/page_router.js';

const NONE = { limits: { linear: Infinity, gpu: Infinity }, elsewhere: { linear: 0, gpu: 0 } };
const turn = () => new Promise((resolve) => { setTimeout(resolve, 5); });
/** Ends of pages, by the name of their lock. */
const ends = new Map();
const ports = [];

before(() => {
  const request = (name, then) => new Promise((resolve) => { ends.set(name, resolve); }).then(then);
  Object.defineProperty(globalThis, 'navigator', { value: { locks: { request } }, configurable: true });
});
afterEach(() => { for (const port of ports.splice(0)) port.close(); });

/** An engine whose sessions are numbers, and pages of it. */
function made(handlers = {}) {
  const log = [];
  let next = 1;
  const engine = new PageRouter((port) => answer(port, {
    open: (params) => { log.push('open'); return handlers.open?.(params) ?? new Promise(() => {}); },
    create: async ({ wait }) => { await wait?.(); return { result: { session: next++ } }; },
    release: ({ session }) => { log.push(`release ${session}`); return { result: null }; },
    memoryLimits: ({ limits, elsewhere }) => { log.push(`limit ${limits.linear} ${elsewhere.linear}`); return { result: null }; },
    run: async (_, progress, stop) => {
      progress({ state: 'ready' });
      while (!stop.stopped) await turn();
      stop.check();
    },
    metrics: ({ session }) => { if (session !== 1) throw new Error('no such session'); return { result: session }; },
  }));
  const page = (tab, memory = NONE) => {
    const { port1, port2 } = new MessageChannel();
    ports.push(port1, port2);
    port2.onmessage = ({ data }) => engine.take(port2, data);
    const caller = new Caller(port1);
    const opened = caller.call('open', { tab, memory });
    opened.catch(() => {});
    return { caller, port: port1, opened };
  };
  return { engine, log, page };
}

test('each page gets its own answers, errors and progress, though both number their calls from 1', async () => {
  const { log, page } = made();
  const [a, b] = [page('a'), page('b')];
  const found = [];
  for (const { caller } of [a, b, a]) found.push((await caller.call('create', {})).session);
  assert.deepEqual(found, [1, 2, 3]);
  const [right, wrong] = await Promise.allSettled([a.caller.call('metrics', { session: 1 }), b.caller.call('metrics', { session: 9 })]);
  assert.equal(right.value, 1);
  assert.match(wrong.reason.message, /no such session/);
  assert.equal(log.filter((line) => line === 'open').length, 1); // the engine starts once
});

test('a page stops its own call alone', async () => {
  const { page } = made();
  const pages = [page('a'), page('b')];
  const stops = [];
  const states = [];
  const runs = pages.map(({ caller }, n) => caller.call('run', { session: 1 }, { watch: (stop) => { stops[n] = stop; return () => {}; }, progress: ({ state }) => states.push([n, state]) }));
  const ended = [];
  runs.forEach((run, n) => run.catch((error) => ended.push([n, error.type])));
  await turn();
  stops[1]();
  while (!ended.length) await turn();
  await turn();
  assert.deepEqual(ended, [[1, 'Terminated']]);
  stops[0]();
  while (ended.length < 2) await turn();
  assert.deepEqual(states, [[0, 'ready'], [1, 'ready']]);
});

for (const [how, go] of [['closes', () => ends.get('a')()], ['shuts down', ({ port }) => port.postMessage({ leave: true })]]) {
  test(`a page that ${how} leaves no session and no run`, async () => {
    const { engine, log, page } = made();
    const [a, b] = [page('a'), page('b')];
    await a.caller.call('create', {});
    await b.caller.call('create', {});
    a.caller.call('run', { session: 1 }, { watch: () => () => {} }).catch(() => {});
    let open = () => {};
    const waits = new Promise((resolve) => { open = resolve; });
    engine.take([...engine.pages.keys()][0], { id: 77, call: 'create', params: { wait: () => waits } }); // it ends before this one
    await turn();
    go(a);
    await turn();
    await turn();
    assert.deepEqual(log.filter((line) => line.startsWith('release')), ['release 1']);
    open();
    while (engine.calls.size > 1) await turn(); // `open` stays
    assert.deepEqual(log.filter((line) => line.startsWith('release')), ['release 1', 'release 3']);
    assert.deepEqual([engine.pages.size, (await b.caller.call('create', {})).session], [1, 4]);
  });
}

test('the limit of the page with the least room holds, until it leaves', async () => {
  const { log, page } = made();
  page('a', { limits: { linear: 100, gpu: Infinity }, elsewhere: { linear: 10, gpu: 0 } });
  const b = page('b', { limits: { linear: 200, gpu: Infinity }, elsewhere: { linear: 150, gpu: 0 } });
  await turn();
  await b.caller.call('create', {});
  b.port.postMessage({ leave: true });
  await turn();
  assert.deepEqual(log, ['open', 'limit 200 150', 'release 1', 'limit 100 10']);
});

test('if the engine cannot start, all pages are told', async () => {
  let fail = () => {};
  const { page } = made({ open: () => new Promise((_, reject) => { fail = reject; }) });
  let closed = 0;
  globalThis.close = () => { closed++; };
  const pages = [page('a'), page('b')];
  await turn();
  fail(new Error('no Python'));
  const told = await Promise.allSettled(pages.map(({ opened }) => opened));
  delete globalThis.close;
  assert.deepEqual([told.map(({ status, reason }) => `${status} ${reason.message}`.includes('no Python')), closed], [[true, true], 1]);
});

import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { platform } from '../../web/common/platform.js';
import { WorkerHost, workersHang } from '../../web/page/engine/worker_host.js';
import { remoteWorkerClass } from '../../web/threads/remote_worker.js';

const { worker: usual } = platform
/** @type {any[]} */
let started = [];

/** What a page starts: tells its port all it is told, in capitals. */
class Fake {
  constructor(url, { name }) {
    if (name === 'none') throw new Error('no more workers');
    Object.assign(this, { url, name, ended: false });
    started.push(this);
  }

  postMessage({ port }) {
    this.port = port;
    port.onmessage = ({ data }) => port.postMessage(data.toUpperCase());
  }

  terminate() {
    this.ended = true;
    this.port.close();
  }
}

function lent() {
  platform.worker = () => /** @type {any} */ (Fake);
  const page = new WorkerHost();
  return { page, Borrowed: remoteWorkerClass(page.port) };
}

/** @param {any} worker @param {'onmessage' | 'onerror'} event */
const next = (worker, event) => new Promise((resolve) => { worker[event] = resolve; });

afterEach(() => {
  platform.worker = usual;
  started = [];
});

test('messages go to the worker that the page started, and back', async () => {
  const { page, Borrowed } = lent();
  const [one, two] = [1, 2].map((n) => new Borrowed('file:///worker.mjs', { name: `thread ${n}` }));
  two.postMessage('b');
  one.postMessage('a');
  assert.deepEqual((await Promise.all([next(one, 'onmessage'), next(two, 'onmessage')])).map(({ data }) => data), ['A', 'B']);
  assert.deepEqual(started.map(({ url, name }) => [url, name]), [['file:///worker.mjs', 'thread 1'], ['file:///worker.mjs', 'thread 2']]);
  page.end();
  assert.deepEqual(started.map(({ ended }) => ended), [true, true]);
});

test('one that is ended is ended in the page, and the others stay', async () => {
  const { page, Borrowed } = lent();
  const [one, two] = [1, 2].map((n) => new Borrowed('file:///worker.mjs', { name: `thread ${n}` }));
  one.terminate();
  two.postMessage('b');
  await next(two, 'onmessage');
  assert.deepEqual(started.map(({ ended }) => ended), [true, false]);
  page.end();
});

test('what goes wrong in the page is told', async () => {
  const { page, Borrowed } = lent();
  const none = new Borrowed('file:///worker.mjs', { name: 'none' });
  assert.deepEqual(await next(none, 'onerror'), { message: 'no more workers' });
  none.terminate();
  const failing = new Borrowed('file:///worker.mjs', { name: 'thread' });
  const failed = next(failing, 'onerror');
  failing.postMessage('a');
  await next(failing, 'onmessage');
  started[0].onerror({ message: 'a syntax error' });
  assert.deepEqual(await failed, { message: 'a syntax error' });
  page.end();
});

test('no worker of a place without a document borrows', () => assert.equal(workersHang(), false));

// Messages with proxies in them, such as the reactive objects of a page's framework.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Caller } from '../../web/common/protocol.js';
import { DeferredWorker } from '../../web/page/engine/deferred_worker.js';

/** A proxy at each level, as Vue's. */
const reactive = (value) => (
  value?.constructor === Object || Array.isArray(value) ? new Proxy(value, { get: (...how) => reactive(Reflect.get(...how)) }) : value);

/** A worker that answers with the parameters that it receives, and a caller whose worker is not chosen yet. */
function deferred() {
  const worker = new DeferredWorker();
  const caller = new Caller(worker);
  worker.onrefused = (id, error) => caller.refuse(id, error);
  const echo = {
    postMessage(message, transfer) {
      const { id, params } = structuredClone(message, { transfer });
      queueMicrotask(() => echo.onmessage({ data: { id, result: params } }));
    },
    terminate() {},
  };
  return { worker, caller, echo };
}

for (const when of ['before', 'after']) {
  test(`proxies are sent as plain copies, ${when} the worker starts`, async () => {
    const { worker, caller, echo } = deferred();
    if (when === 'after') worker.use(echo, () => {});
    const bytes = new Uint8Array([1, 2]);
    const params = { options: reactive({ dims: { batch: 2 }, names: ['a', { b: 1 }] }), bytes };
    const sent = [caller.call('create', params), caller.call('create', { n: 1 }), caller.call('python', reactive({ args: () => {} }))];
    const refused = assert.rejects(sent[2], { name: 'InvalidInput', message: /cannot send the call to the worker: .*could not be cloned/ });
    if (when === 'before') worker.use(echo, () => {});
    assert.deepEqual(await sent[0], { options: { dims: { batch: 2 }, names: ['a', { b: 1 }] }, bytes });
    assert.deepEqual(await sent[1], { n: 1 });
    await refused;
    assert.equal(caller.gone, '');
    assert.equal(caller.pending.size, 0);
  });
}

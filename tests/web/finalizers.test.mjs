import assert from 'node:assert/strict';
import { test } from 'node:test';
import { platform } from '../../web/common/platform.js';
import { deferFinalizers } from '../../web/worker/interpreter/finalizers.js';

test('finalizers that the browser runs during a synchronous read wait for its end', async () => {
  const [native, readNow] = [globalThis.FinalizationRegistry, platform.readNow];
  /** @type {((held: unknown) => void)[]} */
  const registered = [];
  globalThis.FinalizationRegistry = /** @type {any} */ (class {
    /** @param {(held: unknown) => void} cleanup */
    constructor(cleanup) { registered.push(cleanup); }
  });
  /** @type {unknown[]} */
  const log = [];
  platform.readNow = () => {
    registered[0]('during'); // as WebKit does
    log.push('read');
    return new ArrayBuffer(0);
  };
  try {
    const fake = globalThis.FinalizationRegistry;
    const end = deferFinalizers();
    new globalThis.FinalizationRegistry((held) => log.push(held));
    end();
    assert.equal(globalThis.FinalizationRegistry, fake);
    platform.readNow('file');
    assert.deepEqual(log, ['read']);
    await new Promise((done) => setTimeout(done, 5));
    registered[0]('after');
    assert.deepEqual(log, ['read', 'during', 'after']);
  } finally {
    Object.assign(globalThis, { FinalizationRegistry: native });
    platform.readNow = readNow;
  }
});

test('a browser without finalizers needs nothing', () => {
  const native = globalThis.FinalizationRegistry;
  const { readNow } = platform;
  try {
    Object.assign(globalThis, { FinalizationRegistry: undefined });
    deferFinalizers()();
    assert.equal(globalThis.FinalizationRegistry, undefined);
    assert.equal(platform.readNow, readNow);
  } finally {
    Object.assign(globalThis, { FinalizationRegistry: native });
  }
});

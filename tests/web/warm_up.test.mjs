// The interpreter's first half warms up in a separate instance; failures there only cost time.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { warmLater, warmUp } from '../../web/worker/interpreter/split_wasm.js';

/** Imports a function, which it calls, and a global; "split warm up" counts its calls in the export "count". */
const COUNTS = 'AGFzbQEAAAABBAFgAAACFwIDZW52AWYAAAhHT1QuZnVuYwFnA38BAwIBAAYGAX8BQQALBxkCBWNvdW50AwENc3BsaXQgd2FybSB1cAABCg0BCwAQACMBQQFqJAEL';
/** Its "split warm up" is unreachable. */
const TRAPS = 'AGFzbQEAAAABBAFgAAADAgEABxEBDXNwbGl0IHdhcm0gdXAAAAoFAQMAAAs=';
const NOTHING = 'AGFzbQEAAAA=';

/** The instances that `warmUp` makes. @param {import('node:test').TestContext} t @param {string} base64 */
function made(t, base64) {
  /** @type {WebAssembly.Instance[]} */
  const instances = [];
  const { Instance } = WebAssembly;
  t.mock.method(WebAssembly, 'Instance', function instance(/** @type {any[]} */ ...given) {
    instances.push(Reflect.construct(Instance, given));
    return instances.at(-1);
  });
  warmUp(new WebAssembly.Module(Buffer.from(base64, 'base64')));
  return instances;
}

test('it is called once', (t) => {
  assert.deepEqual(made(t, COUNTS).map(({ exports }) => /** @type {WebAssembly.Global} */ (exports.count).value), [1]);
});

test('where it traps, Python starts all the same', (t) => assert.equal(made(t, TRAPS).length, 1));

test("Pyodide's own WebAssembly has nothing to call", (t) => {
  const [{ exports }] = made(t, NOTHING);
  assert.deepEqual(Object.keys(exports), []);
  warmLater(new WebAssembly.Instance(new WebAssembly.Module(Buffer.from(NOTHING, 'base64'))));
});

test('what is warmed up later is called in the instance that runs', () => {
  let calls = 0;
  warmLater({ exports: { 'split warm up': assert.fail, 'split later': () => { calls++; } } });
  assert.equal(calls, 1);
});

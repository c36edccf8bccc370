// Whether the relaxed dot product reads its second operand as signed or unsigned: detected from results, on several hosts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exactDots } from '../../web/worker/wasm_features.js';

const cut = (/** @type {number} */ sum) => Math.max(-(1 << 15), Math.min(sum, (1 << 15) - 1));
const signed = (/** @type {number} */ b) => (b << 24) >> 24;
const unsigned = (/** @type {number} */ b) => b & 255;

/** The result of a host for the sum of four products of a and b. @type {[string, (a: number, b: number) => number, string][]} */
const HOSTS = [
  ['unsigned', (a, b) => 4 * a * unsigned(b), 'unsigned'],
  ['signed', (a, b) => 4 * a * signed(b), 'signed'],
  ['sums of two cut to 16 bits', (a, b) => 2 * cut(2 * a * unsigned(b)), ''],
  ['signed, sums of two wrap at 16 bits', (a, b) => 2 * ((2 * a * signed(b)) << 16 >> 16), ''],
];

for (const [name, f, want] of HOSTS) {
  test(`dot products: ${name}`, (t) => {
    t.mock.method(WebAssembly, 'validate', () => true);
    t.mock.method(WebAssembly, 'Module', function module() {});
    t.mock.method(WebAssembly, 'Instance', function instance() { return { exports: { f } }; });
    assert.equal(exactDots(), want);
  });
}

test('without relaxed SIMD there are none', (t) => {
  t.mock.method(WebAssembly, 'validate', () => false);
  assert.equal(exactDots(), '');
});

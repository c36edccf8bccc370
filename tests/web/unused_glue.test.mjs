// scripts/unused_glue.mjs removes only unreachable code from Pyodide's JavaScript.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withoutUnused } from '../../scripts/unused_glue.mjs';

const MODULE = `async function make(Module = {}) {
var log = [];
var draw = () => screen.draw();
var screen = { draw() { log.push('drawn'); }, size: [1, 2] };
function _glDraw() { draw(); }
_glDraw.sig = "v";
Module["_glDraw"]=_glDraw;
Module["_read"]=_read;
var _read = () => helper('read');
_read.sig = "i";
var helper = (text) => log.push(text);
var counted = log.push('made');
var byText = () => log.push('by text');
var asked = { of: "byText" };
log.push(typeof asked);
var other = () => log.push('by others');
var made = new Map(), also = 1;
var wasmImports={glDraw:_glDraw, read:_read, log,};
Module["other"]=other;
return { wasmImports, log, call: (name) => eval(name)() };
}
export default make;`;

const { code, cut } = withoutUnused(MODULE, 'module.other()', new Set(['read', 'log']));

test('what is reached from imports, others, texts and what acts by itself stays', async () => {
  const { default: make } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  const settings = {};
  const { wasmImports, log, call } = await make(settings);
  wasmImports.read();
  for (const name of ['byText', 'other']) call(name);
  assert.deepEqual(log, ['made', 'object', 'read', 'by text', 'by others']);
  assert.deepEqual(Object.keys(wasmImports), ['read', 'log']);
  assert.deepEqual(Object.keys(settings), ['_read', 'other']);
  assert.throws(() => call('_glDraw'), { name: 'ReferenceError', message: '_glDraw is not defined' });
});

test('nothing else does', () => {
  assert.equal(cut, 5); // draw, screen, _glDraw, its signature and its export
  assert.doesNotMatch(code, /draw/i);
});

test('what has another form stays as it is', () => {
  assert.deepEqual(withoutUnused('export default 1;', '', new Set()), { code: 'export default 1;', cut: 0 });
});

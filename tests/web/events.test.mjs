// Events, as pages listen for them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emit, isHeard, on } from '../../web/common/events.js';

test('listeners hear the events of their name until they end', () => {
  const heard = [];
  const first = (event) => heard.push(['first', event]);
  const end = on('memory', first);
  on('memory', first); // a listener counts once
  on('session', (event) => heard.push(['other', event]));
  assert.deepEqual(['memory', 'session'].map(isHeard), [true, true]);
  emit('memory', 1);
  const endThird = on('memory', () => endThird()); // ends itself while it is called
  on('memory', (event) => heard.push(['last', event]));
  emit('memory', 2);
  end();
  emit('memory', 3);
  assert.deepEqual(heard, [['first', 1], ['first', 2], ['last', 2], ['last', 3]]);
});

test('an error of a listener is reported and stops nothing', (t) => {
  const { mock } = t.mock.method(globalThis, 'queueMicrotask', () => {});
  const heard = [];
  const ends = [() => { throw new Error('bad listener'); }, (event) => heard.push(event)].map((listener) => on('memory', listener));
  emit('memory', 4);
  assert.deepEqual(heard, [4]);
  assert.throws(mock.calls[0].arguments[0], /bad listener/);
  for (const end of ends) end();
});

test('what is no event, and no listener, is refused', () => {
  assert.throws(() => on('memry', () => {}), { type: 'InvalidInput', message: /there is no event "memry" \(one of memory, session\)/ });
  assert.throws(() => on('toString', () => {}), { type: 'InvalidInput' });
  assert.throws(() => on('memory', null), { type: 'InvalidInput' });
});

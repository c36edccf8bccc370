// Measures for the browser's developer tools: of creations, runs and states, whatever other events a session has.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { afterEach, test } from 'node:test';
import { exportMeasures } from '../../web/extras/index.js';

const DECLARED = readFileSync(new URL('../../web/index.d.ts', import.meta.url), 'utf8').match(/export type SessionEvent = [\s\S]*?\n\);/)[0];
const TYPES = [...DECLARED.matchAll(/readonly type: ([^;]+);/g)].flatMap(([, kinds]) => kinds.match(/\w+/g));

const RUN = { outcome: 'succeeded', start: 5, milliseconds: 2, place: 'page', kernels: [{ node: 'Add', kernel: 'k', place: 'wasm', milliseconds: 1 }] };
/** Entries of events by type, and the names of their measures. */
const EVENTS = {
  created: [{ start: 1, milliseconds: 3, timings: { compile: 2 } }, ['m 1: create', 'm 1: compile']],
  state: [{ state: 'recovering' }, ['m 1: recovering']],
  run: [RUN, ['m 1: run', 'Add']],
  step: [{ loss: 1, norm: 1, rate: 0.1, step: 1, applied: true, batch: 1 }, []],
  batch: [{ loss: 1, norm: 1, rate: 0.1, step: 1, applied: false, batch: 1 }, []],
  'one of a later version': [{}, []],
};

afterEach(() => performance.clearMeasures());

test('each declared type is tried', () => assert.deepEqual(TYPES.filter((type) => !Object.hasOwn(EVENTS, type)), []));

for (const [type, [more, names]] of Object.entries(EVENTS)) {
  test(`an event of the type ${type} has ${names.length} measures`, () => {
    let listener;
    exportMeasures({ on: (_, heard) => { listener = heard; } });
    listener({ type, session: 1, name: 'm', ...more });
    assert.deepEqual(performance.getEntriesByType('measure').map(({ name }) => name).sort(), [...names].sort());
  });
}

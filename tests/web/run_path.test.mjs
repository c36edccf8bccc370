// Where a run goes, for every combination of the facts that decide it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runPath } from '../../web/page/sessions/run_path.js';

const FACTS = ['hasMoved', 'hasGpu', 'hasGpuTensors', 'isTimed', 'dimsDiffer', 'program'];

/** The path of a run of which these facts hold. */
const pathOf = (...facts) => runPath(Object.fromEntries(FACTS.map((name) => [name, facts.includes(name)])));

for (const [place, reason, ...facts] of [
  ["page's GPU", 'the session is there', 'hasMoved', 'hasGpu'],
  ["page's GPU", 'the session is there', ...FACTS],
  ["page's GPU", 'its tensors are there', 'hasGpu', 'hasGpuTensors', 'isTimed', 'program'],
  ['worker', 'the default', 'hasGpuTensors'], // without a GPU their data are downloaded
  ['worker', 'kernels are timed', 'isTimed', 'dimsDiffer', 'program'],
  ['worker', 'dims differ', 'dimsDiffer', 'program'],
  ['page', 'runs are short', 'program'],
  ['page', 'runs are short', 'hasGpu', 'program'],
  ['worker', 'the default', 'hasGpu'],
  ['worker', 'the default'],
]) {
  test(`${facts.join(', ') || 'no fact'}: ${place}, ${reason}`, () => assert.deepEqual(pathOf(...facts), { place, reason }));
}

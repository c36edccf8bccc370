// Where a run goes, for every combination of the facts that decide it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runPath } from '../../web/page/sessions/run_path.js';

const FACTS = ['isOnPageGpu', 'hasGpu', 'hasGpuTensors', 'isTimed', 'hasDifferingDims', 'hasPageProgram'];

/** The path of a run of which these facts hold. */
function pathOf(...facts) {
  const run = Object.fromEntries(FACTS.map((name) => [name, facts.includes(name)]));
  return runPath({ ...run, hasPageProgram: () => run.hasPageProgram });
}

for (const [place, reason, ...facts] of [
  ["page's GPU", 'the session is there', 'isOnPageGpu', 'hasGpu'],
  ["page's GPU", 'the session is there', ...FACTS],
  ["page's GPU", 'its tensors are there', 'hasGpu', 'hasGpuTensors', 'isTimed', 'hasPageProgram'],
  ['worker', 'the default', 'hasGpuTensors'], // without a GPU their data are downloaded
  ['worker', 'kernels are timed', 'isTimed', 'hasDifferingDims', 'hasPageProgram'],
  ['worker', 'dims differ', 'hasDifferingDims', 'hasPageProgram'],
  ['page', 'runs are short', 'hasPageProgram'],
  ['page', 'runs are short', 'hasGpu', 'hasPageProgram'],
  ['worker', 'the default', 'hasGpu'],
  ['worker', 'the default'],
]) {
  test(`${facts.join(', ') || 'no fact'}: ${place}, ${reason}`, () => assert.deepEqual(pathOf(...facts), { place, reason }));
}

test('the page looks for a Program only if nothing else decides', () => {
  const hasPageProgram = () => assert.fail('it looked');
  const run = { isOnPageGpu: false, hasGpu: false, hasGpuTensors: false, isTimed: true, hasDifferingDims: false, hasPageProgram };
  assert.equal(runPath(run).place, 'worker');
});

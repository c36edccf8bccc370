// Checkpoints that the page reads: types of other programs. tests/vectors/training_files.json has what is refused.

import assert from 'node:assert/strict';
import test from 'node:test';

import { write } from '../../web/page/training/safetensors.js';
import { fromCheckpoint } from '../../web/page/training/checkpoint.js';
import { StepNumbers } from '../../web/runtime/step_numbers.js';
import { TrainedWeights } from '../../web/runtime/trained_weights.js';

/** @type {[string, any][]} */
const GIVEN = [['float64', Float64Array.of(1, 2)], ['int32', Int32Array.of(1, 2)], ['int64', BigInt64Array.of(1n, 2n)],
  ['float16', Uint16Array.of(0x3c00, 0x4000)], ['float32', Float32Array.of(1, 2)]];

for (const [dtype, x] of GIVEN) {
  test(`numbers of ${dtype} become those of the weight`, () => {
    const weights = new TrainedWeights([{ name: 'w', shape: [2], dtype: 'float32' }], 1, [], {});
    const file = write({ w: { dtype, shape: [2], bytes: new Uint8Array(x.buffer) } }, {});
    const { w } = fromCheckpoint(file, weights, new StepNumbers({}, 'constant', {}, 0, 1), 'sgd');
    assert.deepEqual([...new Float32Array(w.buffer)], [1, 2]);
  });
}

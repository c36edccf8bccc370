// Inputs of language models for the tokens of a text, as the demo site's page of one's own model fills them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fill, tokenInputs } from '../../demo/model/token_inputs.js';

const int = (name, ...shape) => ({ name, type: 'int64', shape });
const float = (name, ...shape) => ({ name, type: 'float32', shape });
const filled = (inputs, tokens) => Object.fromEntries([...fill(tokenInputs(inputs), tokens).inputs].map(([name, { data, dims }]) => [name, [[...data], dims]]));

/** name, inputs, tokens, elements and dims by input @type {[string, any[], any, Record<string, [number[], number[]]>][]} */
const CASES = [
  ['a pair', [int('input_ids', 'batch', 'seq'), int('token_type_ids', 'batch', 'seq')], { ids: [1, 5, 2, 6, 2], types: [0, 0, 0, 1, 1] },
    { input_ids: [[1, 5, 2, 6, 2], [1, 5]], token_type_ids: [[0, 0, 0, 1, 1], [1, 5]] }],
  ['cut', [int('input_ids', 1, 4), int('token_type_ids', 1, 4)], { ids: [1, 5, 6, 7, 8, 2], types: [0, 0, 0, 1, 1, 1], tail: 1 },
    { input_ids: [[1, 5, 6, 2], [1, 4]], token_type_ids: [[0, 0, 0, 1], [1, 4]] }],
  ['filled up, in a batch of two', [int('input_ids', 2, 4), int('attention_mask', 2, 4)], { ids: [1, 2], pad: 9 },
    { input_ids: [[1, 2, 9, 9, 1, 2, 9, 9], [2, 4]], attention_mask: [[1, 1, 0, 0, 1, 1, 0, 0], [2, 4]] }],
  ['without a batch', [int('ids', 'length'), float('mask', 'length')], { ids: [3, 4] }, { ids: [[3, 4], [2]], mask: [[1, 1], [2]] }],
  ['a cache that grows', [int('input_ids', 1, 'new'), int('attention_mask', 1, 'all'), int('position_ids', 3, 1, 'new'), float('past_key_values.0.key', 'b', 2, 'past', 4),
    { name: 'use_cache_branch', type: 'bool', shape: [1] }, int('num_logits_to_keep')], { ids: [3, 4] }, {
    'input_ids': [[3, 4], [1, 2]], 'attention_mask': [[1, 1], [1, 2]], 'position_ids': [[0, 1, 0, 1, 0, 1], [3, 1, 2]],
    'past_key_values.0.key': [[], [1, 2, 0, 4]], 'use_cache_branch': [[0], [1]], 'num_logits_to_keep': [[1], []],
  }],
  ['an empty cache before the text', [int('input_ids', 1, 2), int('attention_mask', 1, 5), float('past.0', 1, 1, 3, 1)], { ids: [7] },
    { 'input_ids': [[7, 0], [1, 2]], 'attention_mask': [[0, 0, 0, 1, 0], [1, 5]], 'past.0': [[0, 0, 0], [1, 1, 3, 1]] }],
  ['a static cache', [int('input_ids', 1, 'new'), int('attention_mask', 1, 4), float('cache.key', 1, 1, 4, 1)], { ids: [7] },
    { 'input_ids': [[7], [1, 1]], 'attention_mask': [[1, 0, 0, 0], [1, 4]], 'cache.key': [[0, 0, 0, 0], [1, 1, 4, 1]] }],
  ['a decoder beside its encoder', [int('decoder_input_ids', 1, 'n'), int('decoder_attention_mask', 1, 'n'), int('encoder_attention_mask', 1, 'm')], { ids: [7] },
    { decoder_input_ids: [[7], [1, 1]], decoder_attention_mask: [[1], [1, 1]] }],
];

for (const [name, inputs, tokens, expected] of CASES) {
  test(`tokens become inputs: ${name}`, () => assert.deepEqual(filled(inputs, tokens), expected));
}

test('models without tokens have no such inputs', () => {
  for (const input of [float('image', 1, 3, 8, 8), float('input_ids', 1, 4), int('labels', 1)]) assert.equal(tokenInputs([input]), null);
});

test('cutting and filling up are told', () => {
  const told = (inputs, ids) => fill(tokenInputs(inputs), { ids }).told.join('; ');
  assert.match(told([int('input_ids', 1, 2)], [1, 2, 3]), /^3 tokens, cut to 2/);
  assert.match(told([int('input_ids', 1, 4)], [1]), /^1 token; filled up to 4 with token 0, .*no mask$/);
  assert.equal(told([int('input_ids', 1, 'n')], [1]), '1 token');
});

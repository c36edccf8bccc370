// tests/vectors in JavaScript; tests/test_vectors.py is the same in Python.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { unpackBits } from '../../web/common/elements.js';
import { flushSubnormals } from '../../web/run/load_program.js';
import { fromGpuStorage, toGpuStorage } from '../../web/gpu/storage.js';
import { Arena } from '../../web/runtime/arena.js';
import { compileDims, evaluate, symbols } from '../../web/common/dims.js';
import { layOut, LiveRange } from '../../web/runtime/step_layout.js';
import { explain } from '../../web/runtime/explain.js';
import { byteRanges, nextCapacity } from '../../web/runtime/growth.js';
import { Guards } from '../../web/runtime/guards.js';
import { OrderTrial } from '../../web/runtime/order_trial.js';
import { stackedDims } from '../../web/runtime/loop_states.js';
import { fastest, Trial } from '../../web/runtime/trial.js';
import { StepNumbers } from '../../web/runtime/step_numbers.js';
import { TrainedWeights } from '../../web/runtime/trained_weights.js';
import { TrainingSteps } from '../../web/runtime/training_steps.js';
import * as safetensors from '../../web/page/training/safetensors.js';
import { readAdapter } from '../../web/page/training/adapter_file.js';
import { checkInfo, placesIn } from '../../web/page/training/adapter_places.js';
import { fromCheckpoint } from '../../web/page/training/checkpoint.js';
import * as onnxAdapter from '../../web/page/training/onnx_adapter.js';
import { readChatFile, render } from '../../web/extras/chat_files.js';
import { ggufFile, ggufMetadata } from './gguf.mjs';
import { sentence } from './sentences.mjs';

const env = (values) => new Map(Object.entries(values));

function refusal(type, work) {
  try {
    work();
  } catch (error) {
    assert.equal(error.type, type, error.stack);
    return sentence(error);
  }
  return null;
}

/** The digits of a text; "1*9" stands for nine of them. */
const numbers = (text) => text.split(' ').flatMap((word) => {
  const [digits, count = 1] = word.split('*');
  return [...digits.repeat(count)].map(Number);
});

/** NaN as null, and without the last digits. */
const plain = (values) => values.map((x) => (Number.isNaN(x) ? null : typeof x === 'number' ? Number(x.toFixed(12)) : x));

const bytes = (text) => Uint8Array.from(Buffer.from(text, 'base64'));

/** The work's error as its sentence, of any type of ours. */
async function refused(work) {
  try {
    await work();
  } catch (error) {
    assert.ok(error.type, error.stack);
    return sentence(error);
  }
  return null;
}

const CHECKS = {
  training_steps({ settings, schedule, timing, loss_scale: scale, accumulates, weights, calls }) {
    const trained = new TrainedWeights(weights.map((name) => ({ name, shape: [2], dtype: 'float32' })), weights.length, [], {});
    const steps = new TrainingSteps(new StepNumbers(settings, schedule, timing, 7, scale), accumulates, ['target'], ['y'], ['more'], trained);
    for (const { does, rate, sums, names, count, runs, told, refused: text } of calls) {
      const found = [];
      assert.equal(refusal('InvalidInput', () => {
        if (does.endsWith('freeze')) return void found.push(trained.freeze(names, does === 'freeze'));
        if (does === 'next') return void found.push(...steps.next(rate, count).map((run) => [run.outputs, plain(run.numbers)]));
        let run = does === 'step' ? steps.step(rate) : does === 'accumulate' ? steps.accumulate() : steps.apply(rate, sums);
        for (const values of runs) {
          const [fed, outputs] = [plain([...run.numbers, run.applies]), run.outputs];
          const { result, event, batch, warning, following } = steps.ended(run, values.map((x) => x ?? NaN));
          found.push([outputs, fed, event, batch, plain(Object.values(result)), warning]);
          run = following;
        }
      }), text);
      assert.deepEqual(found, told);
    }
  },
  async training_files({ kind, file, tensors, weights, count, optimizer, loss_scale: scale, numbers, refused: text }) {
    const found = {};
    if (kind === 'checkpoint') {
      const trained = new TrainedWeights(weights.map(([name, shape, dtype]) => ({ name, shape, dtype })), count, [], {});
      const own = new StepNumbers({}, 'constant', {}, 0, scale);
      assert.equal(await refused(() => Object.assign(found, fromCheckpoint(bytes(file), trained, own, optimizer))), text);
      if (text === null) assert.deepEqual([[own.step, own.batch, own.waiting, own.goodBatches, own.lossScale, trained.missed], Object.keys(found).sort()], numbers);
      return;
    }
    const read = () => (kind === 'safetensors' ? safetensors.read(bytes(file)).tensors : onnxAdapter.read(bytes(file)));
    assert.equal(await refused(() => Object.assign(found, read())), text);
    const told = Object.entries(found).map(([name, tensor]) => [name, [tensor.dtype, tensor.shape, Buffer.from(tensor.bytes).toString('base64')]]);
    if (text === null) assert.deepEqual(Object.fromEntries(told), tensors);
  },
  async adapter_places({ shapes, config, modules, slots, inputs, rows: [rowsA, rowsB], defaults, places, refused: text }) {
    const info = { rowsA, rowsB, modules, slots, defaults: Object.fromEntries(defaults.map((name) => [name, {}])) };
    const declared = Object.entries(inputs).map(([name, shape]) => ({ name, shape, dtype: 'float32' }));
    const empty = safetensors.write({}, {});
    let found = null;
    assert.equal(await refused(async () => {
      const { config: checked } = await readAdapter({ file: empty, config }, async () => null);
      checkInfo(info, declared);
      const tensors = Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name, { dtype: 'float32', shape, bytes: empty }]));
      found = placesIn(info, declared, 'mine', { tensors, config: checked });
    }), text);
    assert.deepEqual(JSON.parse(JSON.stringify(found)), places);
  },
  dims({ dim, symbols: values, value }) {
    assert.equal(evaluate(dim, env(values)) + 0, value); // + 0: -0 is 0
    assert.deepEqual(compileDims([dim, 1, dim])(env(values)).map((n) => n + 0), [value, 1, value]);
    assert.deepEqual([...symbols(dim)].sort(), Object.keys(values).sort());
  },
  guards({ guards, symbols, shown = {}, dims = [], fresh, unsupported, refused }) {
    const found = new Guards({ guards, dims, symbols: shown });
    assert.equal(refusal(unsupported ? 'UnsupportedOp' : 'ShapeError', () => found.bound(env(symbols), new Set(fresh))), refused);
  },
  unpack({ bits, signed, packed, elements }) {
    const into = new Uint8Array(elements.length);
    unpackBits(Uint8Array.from(packed), bits, signed, into);
    assert.deepEqual([...into], elements);
  },
  flush({ dtype, bytes, flushed }) {
    assert.deepEqual([...flushSubnormals(Uint8Array.from(bytes), dtype)], flushed);
  },
  int64({ dtype, elements, stored, refused }) {
    const values = (dtype === 'int64' ? BigInt64Array : BigUint64Array).from(elements, BigInt);
    const bytes = new Uint8Array(values.buffer);
    if (refused) {
      assert.equal(refusal('ExecutionError', () => toGpuStorage(bytes, dtype)), refused);
      return;
    }
    const narrow = toGpuStorage(bytes, dtype);
    assert.deepEqual([...new Uint32Array(narrow.buffer, narrow.byteOffset, narrow.length / 4)], stored);
    const wide = new Uint8Array(bytes.length);
    fromGpuStorage(narrow, dtype, wide);
    assert.deepEqual(wide, bytes);
  },
  layout({ calls, free, end, ranges, addresses, reach }) {
    const arena = Object.assign(new Arena(0), { free, end, top: end });
    const found = ranges.map((range) => new LiveRange(...range));
    layOut(arena, found, calls);
    assert.deepEqual(found.map(({ address }) => address), addresses);
    assert.equal(arena.top, reach);
  },
  sizes({ size, rounded }) {
    assert.equal(new Arena(0).round(size), rounded);
  },
  explain({ table, symbols, moved, told }) {
    assert.deepEqual(explain({ explain: table }, env(symbols), moved), told);
  },
  growth({ shape, axis, capacity, item, ranges, least, next, refused = null }) {
    let found;
    assert.equal(refusal('ShapeError', () => (found = byteRanges(shape, axis, capacity, item))), refused);
    if (refused) return;
    assert.deepEqual([found.count, found.length, found.stride, found.row], ranges);
    assert.equal(nextCapacity(least, found), next);
  },
  fastest({ costs, gain, winner }) {
    assert.equal(fastest(costs, gain), winner);
  },
  trial({ candidates, rounds, gain, retry_after: retryAfter, phases }) {
    const trial = new Trial(candidates, rounds, gain, retryAfter);
    for (const { times, runs, best } of phases) {
      for (const expected of numbers(runs)) {
        assert.equal(trial.current, expected);
        trial.took(times[trial.current]);
      }
      assert.equal(trial.best, best);
    }
  },
  order_trial({ phases }) {
    const trial = new OrderTrial();
    for (const { times, reads, orders, best, shared = false } of phases) {
      for (const [n, expected] of numbers(orders).entries()) {
        assert.equal(trial.order, expected);
        trial.took(reads[n % reads.length], times[trial.order], shared);
      }
      assert.equal(trial.best, best);
    }
  },
  chat_templates({ template, messages, tools, prompt, variables, tokens, text, refused = '' }) {
    const shown = () => render(template, { ...tokens, messages, tools, documents: null, add_generation_prompt: prompt, ...variables });
    if (text !== null) return assert.equal(shown(), text);
    assert.throws(shown, ({ message }) => !refused.includes('roles') || message.includes(refused));
  },
  async gguf_tokenizers(given) {
    const { tokenizer } = await readChatFile(ggufFile(ggufMetadata(given)));
    assert.deepEqual(tokenizer.encode(given.text).ids, given.tokens);
    assert.equal(tokenizer.decode(given.tokens, { skip_special_tokens: true }), given.decoded);
  },
  stack({ rank, shapes, stacked, refused = null }) {
    let found;
    assert.equal(refusal('ExecutionError', () => (found = stackedDims(shapes, rank, 'Loop "l" (opset 20)'))), refused);
    assert.deepEqual(found, stacked);
  },
};

for (const [name, check] of Object.entries(CHECKS)) {
  test(name, async () => {
    const { cases } = JSON.parse(readFileSync(new URL(`../vectors/${name}.json`, import.meta.url), 'utf8'));
    for (const given of cases) {
      try {
        await check(given);
      } catch (cause) {
        throw new Error(`${JSON.stringify(given)}: ${cause.message}`, { cause });
      }
    }
  });
}

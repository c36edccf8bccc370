// A program that has the package from its folder of modules: tells what it finds, as JSON.

import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import * as ort from 'pyruntime';

const told = (error) => [error instanceof ort.PyRuntimeError, error.type, error.message];
const opened = []; // sessions that nothing refers to would be released with a warning
const open = async (...args) => {
  const session = await ort.InferenceSession.create(...args);
  opened.push(session);
  return session;
};
const tensor = (...data) => new ort.Tensor('float32', Float32Array.from(data), [2, 3]);

/** 1 … 6 plus ones, a hundred times: short Programs come to this thread. */
async function add(model, options) {
  const session = await open(model, options);
  const sums = new Set();
  for (let n = 0; n < 100; n++) {
    const { c } = await session.run({ a: tensor(1, 2, 3, 4, 5, 6), b: tensor(1, 1, 1, 1, 1, 1) });
    sums.add(c.data.join());
  }
  await session.release();
  return [...sums];
}

/** Some runs of a product on two threads, its last result in a file. */
async function product(file) {
  const session = await open('models/product.onnx', { intraOpNumThreads: 2 });
  const x = new ort.Tensor('float32', Float32Array.from({ length: 768 * 768 }, (_, i) => (i % 13) / 13), [768, 768]);
  let y;
  for (let n = 0; n < 40; n++) ({ y } = await session.run({ x }));
  writeFileSync(file, y.data);
  return (await ort.stats()).threads;
}

/** One row, and why weights are not read again where their file has changed. */
async function large() {
  const session = await open('models/large.onnx', { intraOpNumThreads: 1 });
  const rows = (count) => session.run({ x: new ort.Tensor('float32', new Float32Array(count * 2048).fill(1), [count, 2048]) });
  const { y } = await rows(1);
  await rows(2048);
  await session.trim();
  await rows(2048);
  appendFileSync('models/large.onnx', '?');
  return [[...y.data.subarray(0, 4)], await session.trim().then(() => rows(1)).catch(told)];
}

/** Bytes as Node.js reads them, of a small file: a part of a larger buffer. */
async function bytes() {
  const session = await open(readFileSync('models/bytes.onnx'));
  const { y } = await session.run({ x: new ort.Tensor('uint8', Buffer.from('abc'), [3]) });
  return [...y.data];
}

const create = (model, options) => open(model, options).catch(told);
const url = pathToFileURL('models/add.onnx').href;
console.log(JSON.stringify({
  path: await add('models/add.onnx'),
  url: await add(url),
  file: await add(readFileSync('models/add.onnx')),
  odd: await add('models/50% of #1?.onnx', { intraOpNumThreads: 1 }),
  external: (await open('models/external.onnx', { externalData: ['external.bin'] })).outputNames,
  beside: (await open('models/external.onnx')).outputNames,
  large: await large(),
  bytes: await bytes(),
  inspected: await ort.inspect('models/external.onnx'),
  empty: await ort.inspect('models/empty.onnx').catch(told),
  threads: await product('product.bin'),
  python: await ort.python('import sys; sys.platform'),
  missing: await create('models/nothing.onnx'),
  unsupported: await create('models/unsupported.onnx'),
  option: 'Deno' in globalThis || await create(url, { executionProviders: ['webgpu'] }), // webgpu.mjs
}));

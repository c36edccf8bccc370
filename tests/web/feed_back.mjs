// Runs an exported program in Node.js with web/'s executor, each present fed back by its name, and prints what came out,
// element by element.
// Usage: node feed_back.mjs PROGRAM FEEDS; FEEDS: JSON list of runs, name -> { type, dims, data (base64) }, of which the
// first has pasts

import { readFile } from 'node:fs/promises';
import { Executor } from '../../web/run/executor.js';
import { ResidentOutputs } from '../../web/run/resident_outputs.js';
import { parse } from '../../web/worker/programs/program_file.js';

const [file, feedsFile] = process.argv.slice(2);
const { header, blob } = parse(new Uint8Array(await readFile(file)));
const read = () => { throw new Error('the weights are in the program'); };
const executor = await Executor.create({ header, blob, python: null }, read, null, { shared: false });
executor.held = new ResidentOutputs(executor.plan, executor.memory);

const ARRAYS = { float32: Float32Array, int64: BigInt64Array, float16: Uint16Array, int8: Int8Array };
const names = Object.fromEntries(header.outputs.map(({ name }) => [name, null]));
const outputs = [];
let pasts = {};
for (const feeds of JSON.parse(await readFile(feedsFile, 'utf8'))) {
  const wire = Object.entries(feeds).map(([name, { type, dims, data }]) => {
    const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
    return [name, { type, dims, data: new ARRAYS[type](bytes.buffer) }];
  });
  const found = await executor.run({ ...Object.fromEntries(wire), ...pasts }, names);
  outputs.push(Object.values(found).map(({ data }) => Array.from(data, Number)));
  const presents = Object.entries(found).filter(([name]) => name.startsWith('present'));
  pasts = Object.fromEntries(presents.map(([name, { type, dims, held }]) => [name.replace('present', 'past'), { type, dims, held }]));
}
console.log(JSON.stringify(outputs));

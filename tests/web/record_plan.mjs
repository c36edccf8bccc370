// Runs an exported program in Node.js with web/'s executor and prints where it put everything, call by call, and what came
// out, element by element.
// Usage: node record_plan.mjs PROGRAM FEEDS; FEEDS: JSON list of runs, name -> { type, dims, data (base64) }

import { readFile } from 'node:fs/promises';
import { Executor } from '../../web/run/executor.js';
import { parse } from '../../web/worker/programs/program_file.js';
import { Planner } from '../../web/runtime/planner.js';

const [file, feedsFile] = process.argv.slice(2);
const { header, blob } = parse(new Uint8Array(await readFile(file)));
const read = () => { throw new Error('the weights are in the program'); };

const placed = [];
const { _layOutCalls: layOutCalls } = Planner.prototype;
Planner.prototype._layOutCalls = function (calls, dims, state, key) {
  const result = layOutCalls.call(this, calls, dims, state, key);
  const words = [...dims.blocks.fill(result.words, state.env)];
  let at = 0;
  const rest = calls.map(({ buffers, params }) => {
    const addresses = words.slice(at, at + buffers.length);
    const numbers = words.slice(at + buffers.length, at + buffers.length + params.length + 1);
    at += buffers.length + params.length + 1;
    return [addresses, numbers];
  });
  placed.push(rest);
  return result;
};

const ARRAYS = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, bool: Uint8Array, uint8: Uint8Array, float16: Uint16Array, int8: Int8Array };
const executor = await Executor.create({ header, blob, python: null }, read, null, { shared: false });
const { base } = executor.plan.root.place.arena;
const names = Object.fromEntries(header.outputs.map(({ name }) => [name, null]));
const outputs = [];
for (const feeds of JSON.parse(await readFile(feedsFile, 'utf8'))) {
  const wire = Object.entries(feeds).map(([name, { type, dims, data }]) => {
    const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
    return [name, { type, dims, data: new ARRAYS[type](bytes.buffer) }];
  });
  const found = await executor.run(Object.fromEntries(wire), names);
  outputs.push(Object.values(found).map((wire) => wire && Array.from(wire.data ?? [], Number)));
}
console.log(JSON.stringify({ begin: base, placed, outputs }));

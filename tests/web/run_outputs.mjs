// Runs an exported program in Node.js with web/'s executor, and prints the outputs of each run, element by element.
// Usage: node run_outputs.mjs PROGRAM RUNS; RUNS: JSON list of { names, feeds: name -> { type, dims, data (base64) } }

import { readFile } from 'node:fs/promises';
import { Executor } from '../../web/run/executor.js';
import { ResidentOutputs } from '../../web/run/resident_outputs.js';
import { parse } from '../../web/worker/programs/program_file.js';

const [file, runsFile] = process.argv.slice(2);
const { header, blob } = parse(new Uint8Array(await readFile(file)));
const read = () => { throw new Error('the weights are in the program'); };
const executor = await Executor.create({ header, blob, python: null }, read, null, { shared: false });
executor.held = new ResidentOutputs(executor.plan, executor.memory);

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array, uint8: Uint8Array, int8: Int8Array,
  bool: Uint8Array, float16: Uint16Array,
};
const numbers = (value) => (Array.isArray(value) ? value.map(numbers) : value && Array.from(value.data, Number));
const outputs = [];
for (const { names, feeds } of JSON.parse(await readFile(runsFile, 'utf8'))) {
  const wire = Object.entries(feeds).map(([name, { type, dims, data }]) => {
    const bytes = Uint8Array.from(Buffer.from(data, 'base64'));
    return [name, { type, dims, data: new ARRAYS[type](bytes.buffer) }];
  });
  const found = await executor.run(Object.fromEntries(wire), Object.fromEntries(names.map((name) => [name, null])));
  outputs.push(names.map((name) => numbers(found[name])));
}
console.log(JSON.stringify(outputs));

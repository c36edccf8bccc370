// A program that runs a model on the GPU, which Deno has.

import process from 'node:process';
import * as ort from 'pyruntime';

const session = await ort.InferenceSession.create('models/add.onnx', { executionProviders: ['webgpu'] });
const tensor = (...data) => new ort.Tensor('float32', Float32Array.from(data), [2, 3]);
const { c } = await session.run({ a: tensor(1, 2, 3, 4, 5, 6), b: tensor(1, 1, 1, 1, 1, 1) });
console.log(JSON.stringify([...c.data]));
process.exit(0); // a worker with an adapter of Mesa's crashes Deno 2.9 at its end, once in twenty times

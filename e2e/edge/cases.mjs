// Runs models of modules, wherever they were imported: in Node.js, Deno and workerd.

import { InferenceSession, Tensor } from './module.mjs';

const ARRAYS = { float32: Float32Array, int64: BigInt64Array, bool: Uint8Array };

/** Numbers as JSON has them. */
const plain = ({ type, dims, data }) => [type, dims, Array.from(data, Number)];

async function refused(action) {
  try {
    await action();
    return '';
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

/** @param {Record<string, WebAssembly.Module>} modules @param {[string, Record<string, [string, number[], number[]]>][]} cases */
export async function found(modules, cases) {
  const outputs = [];
  const sessions = {};
  for (const [name, feeds] of cases) {
    const session = sessions[name] ??= await InferenceSession.create(modules[name]);
    const tensors = Object.entries(feeds).map(([input, [type, dims, data]]) => (
      [input, new Tensor(type, ARRAYS[type].from(data, type === 'int64' ? BigInt : Number), dims)]));
    const results = await session.run(Object.fromEntries(tensors));
    outputs.push(Object.values(results).map(plain));
  }
  const { affine } = sessions;
  const right = { x: new Tensor('float32', new Float32Array(4), [1, 4]) };
  return {
    outputs, about: [affine.inputNames, affine.outputNames, affine.inputMetadata, affine.outputMetadata],
    refused: [
      await refused(() => affine.run({ x: new Tensor('float32', new Float32Array(3), [1, 3]) })),
      await refused(() => affine.run({})),
      await refused(() => affine.run(right, ['z'])),
      await refused(() => InferenceSession.create(new Uint8Array(8))),
      await refused(() => InferenceSession.create(modules.empty)),
      await refused(async () => { await affine.release(); await affine.run(right); }),
    ],
  };
}

import { InferenceSession, Tensor } from 'pyruntime';

const session = await InferenceSession.create(process.argv[2] ?? 'digits.onnx');
const image = new Tensor('float32', new Float32Array(28 * 28), [1, 1, 28, 28]);
const { probabilities } = await session.run({ image });
console.log(`A blank is read as ${probabilities.data.indexOf(Math.max(...probabilities.data))}.`);
await session.release();

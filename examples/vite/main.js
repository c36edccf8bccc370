import * as ort from 'pyruntime';

const session = await ort.InferenceSession.create('/digits.onnx', { intraOpNumThreads: 2 }); // in public/
const image = new ort.Tensor('float32', new Float32Array(28 * 28), [1, 1, 28, 28]);
const { probabilities } = await session.run({ image });
const { threads } = await ort.stats();
document.body.textContent = `A blank is read as ${probabilities.data.indexOf(Math.max(...probabilities.data))}, by ${threads + 1} threads.`;

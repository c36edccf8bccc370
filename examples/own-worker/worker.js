import * as ort from './pyruntime/ort.mjs';

const session = ort.InferenceSession.create('digits.onnx');

onmessage = async ({ data }) => {
  const image = new ort.Tensor('float32', data, [1, 1, 28, 28]);
  const { probabilities } = await (await session).run({ image });
  postMessage(probabilities.data.indexOf(Math.max(...probabilities.data)));
};

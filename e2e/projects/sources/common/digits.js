import { InferenceSession, Tensor } from 'pyruntime';

let session; // a promise: pages that call twice at the start still create one session

/** The digit that 28 x 28 pixels show (0: paper, 1: ink). */
export async function readDigit(pixels) {
  session ??= InferenceSession.create('/digits.onnx');
  const image = new Tensor('float32', pixels, [1, 1, 28, 28]);
  const { probabilities } = await (await session).run({ image });
  return probabilities.data.indexOf(Math.max(...probabilities.data));
}

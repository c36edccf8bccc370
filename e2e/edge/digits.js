import module from './digits.wasm';
import { InferenceSession, Tensor } from 'pyruntime/module';

const session = InferenceSession.create(module);

export default {
  async fetch(request) {
    const image = new Tensor('float32', new Float32Array(await request.arrayBuffer()), [1, 1, 28, 28]);
    const { probabilities } = await (await session).run({ image });
    return Response.json([...probabilities.data]);
  },
};

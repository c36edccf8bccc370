import * as ort from 'pyruntime';
import { Batcher, TextGenerator } from 'pyruntime/extras';
import { install } from 'pyruntime/offline';

export async function first(model: Uint8Array, picture: HTMLImageElement): Promise<Blob> {
  const session = await ort.InferenceSession.create(model, { executionProviders: ['webgpu', 'wasm'] });
  const image: ort.TypedTensor<'float32'> = await ort.Tensor.fromImage(picture, { location: 'gpu-buffer' });
  await session.run({ image });
  return new Blob([await session.export()]);
}

export { Batcher, TextGenerator, install };

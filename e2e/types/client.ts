// A program written for onnxruntime-web compiles against this package, and the other way round.

import * as common from 'onnxruntime-common';
import * as ort from 'pyruntime';
import byDefault from 'pyruntime';

export async function classify(url: string, pixels: Float32Array): Promise<ort.Tensor> {
  ort.env.wasm.numThreads = 2;
  ort.env.wasm.wasmPaths = '/assets/';
  const options: ort.InferenceSession.SessionOptions = {
    executionProviders: ['webgpu', 'wasm'],
    graphOptimizationLevel: 'all',
    memoryLimit: 2 ** 30,
    compileTimeLimit: 60,
    preset: 'power',
    onProgress: ({ phase, loaded, total }) => console.log(phase.toUpperCase(), loaded / total),
  };
  const session: ort.InferenceSession = await ort.InferenceSession.create(url, options);
  const feeds: ort.InferenceSession.OnnxValueMapType = { [session.inputNames[0]]: new ort.Tensor('float32', pixels, [1, 1, 8, 8]) };
  const signal = AbortSignal.timeout(1000);
  const results = await session.run(feeds, { signal, terminate: false });
  await session.trim();
  const [first] = session.outputMetadata;
  if (first.isTensor) console.log(first.type, first.shape);
  await session.release();
  return results[session.outputNames[0]];
}

/** Feeds of every kind; results are tensors. */
export async function everyFeed(session: ort.InferenceSession, model: Response): Promise<readonly number[]> {
  const one = new ort.Tensor('float32', [1], [1]);
  const feeds: ort.Feeds = { tensor: one, sequence: [one, one], absent: null, map: new Map([[1n, 0.5]]), record: { a: 1, b: 2 } };
  const fetch = (url: string, init?: RequestInit): Promise<Response> => globalThis.fetch(url, { ...init, credentials: 'include' });
  await ort.InferenceSession.create(model, { fetch });
  await session.verify(feeds);
  await session.run(feeds, ['y'], { terminate: false });
  return (await session.run({ tensor: one, sequence: [one], absent: null }, { signal: AbortSignal.timeout(1) })).y.dims;
}

/** One type, whichever package names it. */
export const factory: common.InferenceSessionFactory = ort.InferenceSession;
export const create: typeof ort.InferenceSession.create = byDefault.InferenceSession.create;
export const tensor: common.Tensor = new ort.Tensor('bool', [true]);
export const typed: ort.TypedTensor<'int64'> = new common.Tensor('int64', [1n]);

export function report(error: unknown): string {
  if (error instanceof ort.Terminated) return error.name;
  if (error instanceof ort.InvalidInput) return `${error.type} at ${error.node}: ${error.detail} ${error.hint}`;
  return String(error);
}

/** Pictures on the GPU, and onnxruntime's on the CPU. */
export async function pictures(video: HTMLVideoElement, texture: GPUTexture, canvas: OffscreenCanvas): Promise<GPUTexture> {
  const halves: ort.TypedTensor<'float16'> = await ort.Tensor.fromImage(video, { location: 'gpu-buffer', dataType: 'float16', resizedWidth: 8 });
  const gray: ort.Tensor = await ort.Tensor.fromTexture(texture, { tensorFormat: 'GRAY', norm: { mean: 1 } });
  const cpu: ort.Tensor = await ort.Tensor.fromImage(new ImageData(1, 1), { tensorFormat: 'BGR' });
  for (const tensor of [halves, gray]) await tensor.toTexture({ canvas });
  return cpu.toTexture({ texture, format: 'BGR' });
}

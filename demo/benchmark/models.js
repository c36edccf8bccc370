// The models of the benchmark, with their trained weights, and the inputs of a run.

/** @typedef {{ type: string, dims: number[], value?: number }} Input value: of all elements; else pseudo-random ones */
/** @typedef {{ name: string, url: string, inputs: Record<string, Input> }} Entry */

const floats = (/** @type {number[]} */ ...dims) => ({ type: 'float32', dims });
const number = (/** @type {number} */ value) => ({ type: 'float32', dims: [], value });

/** @type {Entry[]} */
export const MODELS = [
  { name: 'Digits', url: '../digits/digits.onnx', inputs: { image: floats(1, 1, 28, 28) } },
  { name: 'Voice (Silero VAD)', url: '../vad/silero_vad_v5.onnx', inputs: { input: floats(1, 576), state: floats(2, 1, 128), sr: { type: 'int64', dims: [], value: 16000 } } },
  { name: 'Pitch (SwiftF0)', url: '../models/pitch.onnx', inputs: { audio: floats(1, 16000), fmin: number(46.875), fmax: number(2093.75) } },
  { name: 'Mel spectrogram', url: '../models/mel_spectrogram.onnx', inputs: { input: floats(1, 16000) } },
  { name: 'Speech embedding', url: '../models/speech_embedding.onnx', inputs: { input_1: floats(1, 76, 32, 1) } },
  { name: 'Names (Transformer encoder)', url: '../models/name_encoder.onnx', inputs: { src: { type: 'int64', dims: [1, 16], value: 5 }, src_mask: { type: 'bool', dims: [1, 16], value: 1 } } },
  { name: 'File types (Magika)', url: '../models/file_types.onnx', inputs: { bytes: { type: 'int32', dims: [1, 2048], value: 101 } } },
  { name: 'Text direction (PP-OCR)', url: '../models/ocr/direction.onnx', inputs: { x: floats(1, 3, 48, 192) } },
  { name: 'Text recognition (PP-OCR)', url: '../models/ocr/recognition.onnx', inputs: { x: floats(1, 3, 48, 320) } },
  { name: 'Text detection (PP-OCR)', url: '../models/ocr/detection.onnx', inputs: { x: floats(1, 3, 320, 320) } },
  { name: 'Faces (CenterFace)', url: '../models/faces.onnx', inputs: { 'input.1': floats(10, 3, 32, 32) } },
  { name: 'Captcha (CRNN)', url: '../models/captcha.onnx', inputs: { image: floats(1, 3, 60, 160) } },
];

const ARRAYS = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array };

/** The elements of an input, the same on each call. @param {Input} input */
export function elementsOf({ type, dims, value }) {
  const size = dims.reduce((product, dim) => product * dim, 1);
  const Kind = /** @type {any} */ (ARRAYS[/** @type {'bool'} */ (type)]);
  const element = (/** @type {number} */ i) => value ?? 2 * ((i * 0.618034) % 1) - 1;
  return Kind.from({ length: size }, (/** @type {unknown} */ _, /** @type {number} */ i) => (type === 'int64' ? BigInt(element(i)) : element(i)));
}

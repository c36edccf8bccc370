// Real inputs: reads images, sound, NumPy arrays and text into the elements of an input.

const RATE = 16000; // Hz, of sound

/** data: as numbers; dims: of the file, or the ones that were asked for. @typedef {{ data: ArrayLike<number | bigint | string>, dims: number[] }} Loaded */
/** dims: sizes, or null where any size is allowed. @typedef {{ type: string, dims: (number | null)[], scale: string }} Wanted */

/** By a file's ending. @type {Record<string, (file: Blob, wanted: Wanted) => Promise<Loaded>>} */
const READERS = { npy: readNpy, wav: readSound, mp3: readSound, ogg: readSound, flac: readSound, txt: readText, png: readImage, jpg: readImage, jpeg: readImage, webp: readImage, gif: readImage };
export const ACCEPTED = `${Object.keys(READERS).map((ending) => `.${ending}`).join()},image/*,audio/*`;

/** Errors: Error with a reason. @param {File} file @param {Wanted} wanted @returns {Promise<Loaded>} */
export async function readInput(file, wanted) {
  const ending = file.name.split('.').at(-1)?.toLowerCase() ?? '';
  const reader = READERS[ending] ?? (file.type.startsWith('image/') ? readImage : file.type.startsWith('audio/') ? readSound : null);
  if (!reader) throw new Error(`“${file.name}” is no image, sound, NumPy array (.npy) or text`);
  const loaded = await reader(file, wanted);
  const misfit = wanted.dims.some((dim, axis) => dim !== null && dim !== loaded.dims[axis]) || wanted.dims.length !== loaded.dims.length;
  if (misfit) throw new Error(`“${file.name}” gives [${loaded.dims.join(', ')}], the input is [${wanted.dims.map((dim) => dim ?? '?').join(', ')}]`);
  return loaded;
}

const VIEWS = /** @type {Record<string, any>} */ ({
  f2: Uint16Array, f4: Float32Array, f8: Float64Array, i1: Int8Array, i2: Int16Array, i4: Int32Array, i8: BigInt64Array,
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array, b1: Uint8Array,
});

/** An array as numpy.save writes it (numpy.lib.format). @param {Blob} file @returns {Promise<Loaded>} */
async function readNpy(file) {
  const buffer = await file.arrayBuffer();
  const view = new DataView(buffer);
  if (view.getUint32(0) !== 0x934e554d) throw new Error('this is no NumPy array');
  const [length, start] = view.getUint8(6) === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  const header = new TextDecoder('latin1').decode(new Uint8Array(buffer, start, length));
  const [, order = '', kind = ''] = /'descr': '([<>|=])(\w+)'/.exec(header) ?? [];
  const dims = (/'shape': \(([^)]*)\)/.exec(header)?.[1] ?? '').split(',').filter((text) => text.trim()).map(Number);
  const View = VIEWS[kind];
  if (!View || order === '>' && View.BYTES_PER_ELEMENT > 1) throw new Error(`NumPy arrays of type ${order}${kind} are not supported`);
  if (header.includes("'fortran_order': True") && dims.length > 1) throw new Error('the array is in Fortran order: save numpy.ascontiguousarray(array)');
  return { data: new View(buffer.slice(start + length)), dims };
}

/** Mono, in as many samples as the input has; else in those of the file. @param {Blob} file @param {Wanted} wanted @returns {Promise<Loaded>} */
async function readSound(file, { dims }) {
  const decoded = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  const last = dims.at(-1) ?? null;
  const samples = new Float32Array(last ?? decoded.length);
  samples.set(decoded.getChannelData(0).subarray(0, samples.length));
  return { data: samples, dims: [...dims.slice(0, -1).map((dim) => dim ?? 1), samples.length] };
}

/** Numbers between spaces or commas; for an input of strings its lines. @param {Blob} file @param {Wanted} wanted @returns {Promise<Loaded>} */
async function readText(file, { type, dims }) {
  const text = await file.text();
  const data = type === 'string' ? text.split(/\r?\n/).filter(Boolean) : text.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (data.some((value) => Number.isNaN(value))) throw new Error('the text must hold numbers, because this input has no strings; token ids, for example');
  return { data, dims: shapeFor(data.length, dims) };
}

/** Sizes with one free axis for all elements. @param {number} length @param {(number | null)[]} dims */
export function shapeFor(length, dims) {
  const free = dims.lastIndexOf(null);
  const known = dims.reduce((/** @type {number} */ product, dim) => product * (dim ?? 1), 1);
  return dims.map((dim, axis) => dim ?? (axis === free ? length / known : 1));
}

/** How pixels become numbers: (pixel / by - mean) / deviation, for each channel. @type {Record<string, { by: number, mean: number[], deviation: number[] }>} */
export const SCALES = {
  '0 to 1': { by: 255, mean: [0, 0, 0], deviation: [1, 1, 1] },
  '−1 to 1': { by: 255, mean: [0.5, 0.5, 0.5], deviation: [0.5, 0.5, 0.5] },
  '0 to 255': { by: 1, mean: [0, 0, 0], deviation: [1, 1, 1] },
  'ImageNet': { by: 255, mean: [0.485, 0.456, 0.406], deviation: [0.229, 0.224, 0.225] },
};

/** Whether an input can be an image: [N, channels, height, width] or [N, height, width, channels]. @param {(number | null)[]} dims */
export function imageLayout(dims) {
  const channels = (/** @type {number | null} */ dim) => dim === 1 || dim === 3 || dim === 4;
  if (dims.length !== 4) return '';
  return channels(dims[1]) ? 'first' : channels(dims[3]) ? 'last' : '';
}

/** @param {Blob} file @param {Wanted} wanted @returns {Promise<Loaded>} */
async function readImage(file, { dims, scale }) {
  const layout = imageLayout(dims);
  if (!layout) throw new Error('an image needs an input of four axes, one of them with 1, 3 or 4 channels');
  const picture = await createImageBitmap(file);
  const [batch, a, b, c] = dims;
  const channels = /** @type {number} */ (layout === 'first' ? a : c);
  const [height, width] = layout === 'first' ? [b ?? picture.height, c ?? picture.width] : [a ?? picture.height, b ?? picture.width];
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(width, height).getContext('2d'));
  context.drawImage(picture, 0, 0, width, height);
  const { data: pixels } = context.getImageData(0, 0, width, height);
  const { by, mean, deviation } = SCALES[scale] ?? SCALES['0 to 1'];
  const [size, data] = [width * height, new Float32Array(width * height * channels)];
  for (let i = 0; i < size; i++) {
    const grey = channels === 1 ? 0.299 * pixels[4 * i] + 0.587 * pixels[4 * i + 1] + 0.114 * pixels[4 * i + 2] : 0;
    for (let k = 0; k < channels; k++) {
      const pixel = channels === 1 ? grey : pixels[4 * i + k];
      data[layout === 'first' ? k * size + i : i * channels + k] = (pixel / by - (mean[k] ?? 0)) / (deviation[k] ?? 1);
    }
  }
  const all = layout === 'first' ? [channels, height, width] : [height, width, channels];
  const count = batch ?? 1;
  const repeated = count === 1 ? data : Float32Array.from({ length: count * data.length }, (_, i) => data[i % data.length]);
  return { data: repeated, dims: [count, ...all] };
}

// Reads text in pictures with two networks (PP-OCR): one finds lines of text, the other one reads each line.

import * as ort from 'pyruntime';
import { findRegions, straightened } from './regions.js';

const LONGEST = 960; // pixels of the picture's longer side in the first network
const HEIGHT = 48; // pixels of a line in the second one

export class Reader {
  /** @param {(progress: import('pyruntime').Progress, address: string) => void} onProgress */
  static async open(onProgress) {
    const open = (/** @type {string} */ name) => {
      const address = `models/ocr/${name}.onnx`;
      return ort.InferenceSession.create(address, { cache: true, onProgress: (progress) => onProgress(progress, address) });
    };
    return new Reader(await open('detection'), await open('recognition'));
  }

  /** @param {ort.InferenceSession} detection @param {ort.InferenceSession} recognition */
  constructor(detection, recognition) {
    this.detection = detection;
    this.recognition = recognition;
    // the author of the model has put the alphabet into its metadata; the first class is "no character"
    this.alphabet = ['', ...(recognition.metadata?.customMetadataMap.character ?? '').split('\n'), ' '];
  }

  /** The lines of text in a picture, from top to bottom. @param {ImageBitmap} picture */
  async read(picture) {
    const scale = Math.min(1, LONGEST / Math.max(picture.width, picture.height));
    const [width, height] = [picture.width, picture.height].map((side) => Math.max(32, 32 * Math.round((side * scale) / 32)));
    const [found] = Object.values(await this.detection.run({ x: tensorOf(picture, width, height) }));
    const lines = [];
    for (const region of findRegions(/** @type {Float32Array} */ (found.data), width, height, picture)) {
      const line = straightened(picture, region, HEIGHT);
      const [scores] = Object.values(await this.recognition.run({ x: tensorOf(line, line.width, HEIGHT) }));
      lines.push({ corners: region.corners, ...this.decode(scores) });
    }
    return lines.filter(({ text, confidence }) => text.trim() && confidence > 0.5);
  }

  /** The likeliest character of each column; repeated ones count once. @param {ort.Tensor} scores [1, columns, characters] */
  decode({ data, dims: [, columns, size] }) {
    const all = /** @type {Float32Array} */ (data);
    let [text, sum, count, before] = ['', 0, 0, 0];
    for (let column = 0; column < columns; column++) {
      const row = all.subarray(column * size, (column + 1) * size);
      const best = row.reduce((top, value, i) => (value > row[top] ? i : top), 0);
      if (best && best !== before) [text, sum, count] = [text + this.alphabet[best], sum + row[best], count + 1];
      before = best;
    }
    return { text, confidence: sum / (count || 1) };
  }
}

/** A picture as floats from -1 to 1: [1, channels, height, width], blue first. @param {CanvasImageSource} picture @param {number} width @param {number} height */
function tensorOf(picture, width, height) {
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(width, height).getContext('2d'));
  context.drawImage(picture, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const size = width * height;
  const values = new Float32Array(3 * size);
  for (let i = 0; i < size; i++) for (let channel = 0; channel < 3; channel++) values[channel * size + i] = data[4 * i + 2 - channel] / 127.5 - 1;
  return new ort.Tensor('float32', values, [1, 3, height, width]);
}

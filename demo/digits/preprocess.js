// Prepares a drawing as in training: scales the digit's bounding box to 8 x 8, then to 22 of 28 pixels.

import { trace } from './pad.js';

export const SIZE = 28; // side of the model's input
export const INK = 22; // side of the digit in it
const SIDE = 300; // of the pad

/** @param {[number, number][][]} strokes */
export function preprocess(strokes) {
  const points = strokes.flat();
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, top] = [Math.min(...xs) - 13, Math.min(...ys) - 13];
  const [width, height] = [Math.max(...xs) + 13 - left, Math.max(...ys) + 13 - top];
  const side = Math.max(width, height, 60);
  const full = surface(SIDE);
  trace(full, strokes, '#fff');
  const box = [left + (width - side) / 2, top + (height - side) / 2, side, side];
  const middle = surface(32);
  middle.drawImage(full.canvas, box[0], box[1], box[2], box[3], 0, 0, 32, 32);
  const small = surface(8);
  small.drawImage(middle.canvas, 0, 0, 8, 8);
  const seen = surface(SIZE);
  seen.drawImage(small.canvas, (SIZE - INK) / 2, (SIZE - INK) / 2, INK, INK);
  const { data } = seen.getImageData(0, 0, SIZE, SIZE);
  const pixels = Float32Array.from({ length: SIZE * SIZE }, (_, i) => data[4 * i + 3] / 255);
  const brightest = pixels.reduce((a, b) => Math.max(a, b), 1e-3);
  return pixels.map((value) => Math.min(1, (1.25 * value) / brightest));
}

/** @param {number} side @returns {OffscreenCanvasRenderingContext2D} */
function surface(side) {
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(side, side).getContext('2d'));
  context.imageSmoothingQuality = 'high';
  return context;
}

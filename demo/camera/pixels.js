// Turns a picture into the model's input on the CPU, as picture.js does on the GPU.

import { Tensor } from 'pyruntime';

const [SIDE, CELLS, POINTS] = [28, 8, 12]; // pixels of the input; cells of a digit in a row; points in a cell's row
const EDGE = 3 / SIDE; // the share of the picture that is left out at each side

/** Brightness of the cells in the central square of a picture, 0 to 1. @param {CanvasImageSource} source @param {number} width @param {number} height */
function cells(source, width, height) {
  const side = CELLS * POINTS;
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(side, side).getContext('2d', { willReadFrequently: true }));
  const full = Math.min(width, height);
  const inner = full * (1 - 2 * EDGE);
  context.drawImage(source, (width - full) / 2 + full * EDGE, (height - full) / 2 + full * EDGE, inner, inner, 0, 0, side, side);
  const { data } = context.getImageData(0, 0, side, side);
  const sums = new Float32Array(CELLS * CELLS);
  for (let i = 0; i < side * side; i++) {
    const cell = CELLS * Math.floor(i / side / POINTS) + Math.floor((i % side) / POINTS);
    sums[cell] += (0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]) / 255 / POINTS ** 2;
  }
  return sums;
}

/** The model's input: ink from 0 to 1, dark on light, scaled to 22 of 28 pixels. @param {CanvasImageSource} source @param {number} width @param {number} height */
export function pictureTensor(source, width, height) {
  const bright = cells(source, width, height);
  const [darkest, paper] = [Math.min(...bright), Math.max(...bright)];
  const ink = (/** @type {number} */ x, /** @type {number} */ y) => {
    if (x < 0 || y < 0 || x >= CELLS || y >= CELLS) return 0;
    return Math.min(1, Math.max(0, (paper - bright[CELLS * y + x]) / Math.max(paper - darkest, 0.2)));
  };
  const image = Float32Array.from({ length: SIDE * SIDE }, (_, i) => {
    const [x, y] = [i % SIDE, Math.floor(i / SIDE)].map((at) => ((at - 2.5) * CELLS) / 22 - 0.5);
    const [left, top] = [Math.floor(x), Math.floor(y)];
    const row = (/** @type {number} */ line) => ink(left, line) * (left + 1 - x) + ink(left + 1, line) * (x - left);
    return row(top) * (top + 1 - y) + row(top + 1) * (y - top);
  });
  return new Tensor('float32', image, [1, 1, SIDE, SIDE]);
}

// Photographs as squares of one size, and as tensors of the network.

import * as ort from 'pyruntime';

const SIDE = 160; // of the network's input
const KEPT = 192; // side of a square; the rest is room for pieces of it

/** @typedef {HTMLCanvasElement} Photograph */

const canvas = new OffscreenCanvas(SIDE, SIDE);
// pixels are read back after each photograph, so they had better not lie on the GPU
const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d', { willReadFrequently: true }));

/** The middle of a picture. @param {CanvasImageSource} picture @param {number} width @param {number} height @returns {Photograph} */
export function squareOf(picture, width, height) {
  const side = Math.min(width, height);
  return pieceOf(picture, (width - side) / 2, (height - side) / 2, side);
}

/** @param {CanvasImageSource} picture @param {number} left @param {number} top @param {number} side @returns {Photograph} */
export function pieceOf(picture, left, top, side) {
  const square = Object.assign(document.createElement('canvas'), { width: KEPT, height: KEPT });
  const target = /** @type {CanvasRenderingContext2D} */ (square.getContext('2d', { willReadFrequently: true }));
  target.imageSmoothingQuality = 'high';
  target.drawImage(picture, left, top, side, side, 0, 0, KEPT, KEPT);
  return square;
}

/** A copy to show. @param {Photograph} photograph */
export function shownCopy(photograph) {
  const copy = /** @type {HTMLCanvasElement} */ (photograph.cloneNode());
  copy.getContext('2d')?.drawImage(photograph, 0, 0);
  return copy;
}

/** @param {Blob} file */
export async function openPhotograph(file) {
  const picture = await createImageBitmap(file);
  const square = squareOf(picture, picture.width, picture.height);
  picture.close();
  return square;
}

/** As a file. @param {Photograph} photograph @returns {Promise<Blob>} */
export const toFile = (photograph) => new Promise((resolve, reject) => {
  photograph.toBlob((blob) => (blob ? resolve(blob) : reject(new Error('this browser writes no JPEG'))), 'image/jpeg', 0.9);
});

/**
 * As the network was trained: from -1 to 1, red, green and blue apart. With `isVaried`, a random piece, perhaps mirrored.
 * @param {Photograph[]} photographs @param {boolean} [isVaried]
 */
export function tensorOf(photographs, isVaried = false) {
  const size = SIDE * SIDE;
  const values = new Float32Array(3 * size * photographs.length);
  photographs.forEach((photograph, n) => {
    const side = isVaried ? KEPT * (0.75 + 0.25 * Math.random()) : KEPT;
    const [left, top] = [Math.random(), Math.random()].map((share) => share * (KEPT - side));
    const isMirrored = isVaried && Math.random() < 0.5;
    context.setTransform(isMirrored ? -1 : 1, 0, 0, 1, isMirrored ? SIDE : 0, 0);
    context.drawImage(photograph, left, top, side, side, 0, 0, SIDE, SIDE);
    const { data } = context.getImageData(0, 0, SIDE, SIDE);
    for (let channel = 0; channel < 3; channel++) {
      const start = (3 * n + channel) * size;
      for (let i = 0; i < size; i++) values[start + i] = (data[4 * i + channel] - 127) / 128;
    }
  });
  return new ort.Tensor('float32', values, [photographs.length, 3, SIDE, SIDE]);
}

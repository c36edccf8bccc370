// Inputs and outputs of an operator: as numbers, or as a picture if both sizes are large.

import { make } from '../common.js';

const PICTURE = 24; // least size of both sides
const ROWS = 16; // shown

/** @typedef {{ dims: readonly number[], data: Float32Array }} Values */

/** Elements from -2 to 2; a picture has circles and a gradient. @param {number[]} dims @returns {Values} */
export function inputOf(dims) {
  const size = dims.reduce((product, dim) => product * dim, 1);
  const [height, width] = dims;
  const data = Float32Array.from({ length: size }, (_, i) => {
    if (!isPicture(dims)) return Math.round(100 * (4 * ((i * 0.618034 + 0.13) % 1) - 2)) / 100;
    const [x, y] = [(i % width) / width, Math.floor(i / width) / height];
    const circle = (/** @type {number} */ u, /** @type {number} */ v, /** @type {number} */ r) => Math.hypot((x - u) * width, (y - v) * height) < r * height;
    return (circle(0.35, 0.5, 0.32) ? 1.2 : 0) - (circle(0.62, 0.42, 0.24) ? 0.8 : 0) + x - 0.5;
  });
  return { dims, data };
}

/** @param {readonly number[]} dims */
const isPicture = (dims) => dims.length === 2 && dims[0] >= PICTURE && dims[1] >= PICTURE;

/** @param {string} name @param {Values} values */
export function figure(name, values) {
  const caption = make('figcaption', {}, `${name} [${values.dims.join(', ')}]`);
  return make('figure', {}, caption, isPicture(values.dims) ? picture(name, values) : numbers(name, values));
}

/** @param {ArrayLike<number>} data @returns {[low: number, high: number]} */
function range(data) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < data.length; i++) [low, high] = [Math.min(low, data[i]), Math.max(high, data[i])];
  return [low, high];
}

/** @param {string} name @param {Values} values */
function picture(name, { dims: [height, width], data }) {
  const canvas = /** @type {HTMLCanvasElement} */ (make('canvas', { width, height, role: 'img', 'aria-label': `${name} as a picture` }));
  const image = new ImageData(width, height);
  const [low, high] = range(data);
  data.forEach((value, i) => {
    const shade = (255 * (value - low)) / (high - low || 1);
    image.data.set([shade, shade, shade, 255], 4 * i);
  });
  canvas.getContext('2d')?.putImageData(image, 0, 0);
  return canvas;
}

/** @param {string} name @param {Values} values */
function numbers(name, { dims, data }) {
  const width = dims.at(-1) ?? 1;
  const count = Math.min(ROWS, Math.ceil(data.length / (width || 1)));
  const [low, high] = range(data);
  const rows = Array.from({ length: count }, (_, i) => make('tr', {}, ...Array.from(data.subarray(i * width, Math.min((i + 1) * width, i * width + 32)), (value) => (
    make('td', { style: `--share: ${(value - low) / (high - low || 1)}` }, Number.isFinite(value) ? value.toFixed(2) : String(value))))));
  return make('div', { class: 'values', tabindex: 0, role: 'region', 'aria-label': `Elements of ${name}` }, make('table', {}, make('tbody', {}, ...rows)));
}

// Drawings are strokes: x and y of their points by turns, on a pad of 300 x 300. The network sees them as 28 x 28 pixels.

import * as ort from 'pyruntime';

const SIZE = 28; // side of the network's input
const INK = 20; // side of the drawing in it
const PEN = 2.2; // pixels of the pen's width in it
const NEAR = 5; // pad's pixels between points that are stored

/** @typedef {number[][]} Drawing */

const canvas = new OffscreenCanvas(SIZE, SIZE);
// pixels are read back after each drawing, so they had better not lie on the GPU
const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d', { willReadFrequently: true }));

/** The strokes of a pad, with fewer points. @param {[number, number][][]} strokes @returns {Drawing} */
export function drawingOf(strokes) {
  return strokes.map((points) => {
    const far = [points[0]];
    for (const [i, point] of points.entries()) {
      const [x, y] = far[far.length - 1];
      if (i === points.length - 1 || Math.hypot(point[0] - x, point[1] - y) >= NEAR) far.push(point);
    }
    return far.flat().map(Math.round);
  });
}

/** @param {Drawing} drawing */
function boxOf(drawing) {
  const all = drawing.flat();
  const [xs, ys] = [0, 1].map((axis) => all.filter((_, i) => i % 2 === axis));
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  const [width, height] = [Math.max(...xs) - left, Math.max(...ys) - top];
  return { x: left + width / 2, y: top + height / 2, side: Math.max(width, height, 40) };
}

/**
 * How a drawing is varied before a step: people draw the same symbol larger, steeper, thicker. All 0 or 1: not at all.
 * @typedef {{ turn: number, lean: number, width: number, height: number, right: number, down: number, pen: number, shake: number }} Variation
 */

/** @type {Variation} */
const PLAIN = { turn: 0, lean: 0, width: 1, height: 1, right: 0, down: 0, pen: 1, shake: 0 };

/** @returns {Variation} */
function anyVariation() {
  const within = (/** @type {number} */ most) => most * (2 * Math.random() - 1);
  return {
    turn: within(0.25), lean: within(0.2), width: 1 + within(0.18), height: 1 + within(0.18),
    right: within(2), down: within(2), pen: 1 + within(0.4), shake: 0.5,
  };
}

/** The drawing as the network sees it, from 0 (paper) to 1 (ink). @param {Drawing} drawing @param {Variation} [variation] */
function pixelsOf(drawing, { turn, lean, width, height, right, down, pen, shake } = PLAIN) {
  const box = boxOf(drawing);
  const scale = INK / box.side;
  const [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  const near = () => (shake ? shake * (2 * Math.random() - 1) : 0);
  context.clearRect(0, 0, SIZE, SIZE);
  Object.assign(context, { lineWidth: PEN * pen, lineCap: 'round', lineJoin: 'round' });
  context.beginPath();
  for (const stroke of drawing) {
    for (let i = 0; i < stroke.length; i += 2) {
      const y = (stroke[i + 1] - box.y) * scale * height;
      const x = (stroke[i] - box.x) * scale * width + lean * y;
      const [u, v] = [SIZE / 2 + right + x * cos - y * sin + near(), SIZE / 2 + down + x * sin + y * cos + near()];
      if (i === 0) context.moveTo(u, v);
      context.lineTo(u, v);
    }
  }
  context.stroke();
  const { data } = context.getImageData(0, 0, SIZE, SIZE);
  return Float32Array.from({ length: SIZE * SIZE }, (_, i) => data[4 * i + 3] / 255);
}

/** The network's input, of drawings that are varied at random with `isVaried`. @param {Drawing[]} drawings @param {boolean} [isVaried] */
export function tensorOf(drawings, isVaried = false) {
  const pixels = new Float32Array(drawings.length * SIZE * SIZE);
  drawings.forEach((drawing, n) => pixels.set(pixelsOf(drawing, isVaried ? anyVariation() : PLAIN), n * SIZE * SIZE));
  return new ort.Tensor('float32', pixels, [drawings.length, 1, SIZE, SIZE]);
}

/** A small picture of the drawing. @param {Drawing} drawing */
export function thumbnail(drawing) {
  const box = boxOf(drawing);
  const side = box.side + 36;
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', `${box.x - side / 2} ${box.y - side / 2} ${side} ${side}`);
  svg.setAttribute('aria-hidden', 'true');
  for (const stroke of drawing) {
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'polyline');
    line.setAttribute('points', (stroke.length > 2 ? stroke : [...stroke, ...stroke]).join(' '));
    svg.append(line);
  }
  return svg;
}

// Lines of text in the map that the first network makes: connected pixels, and the smallest rectangle around each group.

import { hull, smallestRectangle } from './rectangle.js';

/** @typedef {[number, number]} Point */
/** corners: from the start of the text clockwise, in pixels of the picture. @typedef {{ corners: Point[], width: number, height: number }} Region */

const PIXEL = 0.3; // least probability that a pixel is text
const MEAN = 0.5; // least mean of a region
const GROWTH = 1.6; // unclip ratio of DB (arXiv:1911.08947): regions grow by area · ratio / perimeter
const SMALLEST = 3; // pixels

/**
 * From top to bottom.
 * @param {Float32Array} map probabilities @param {number} width @param {number} height of the map
 * @param {{ width: number, height: number }} picture @returns {Region[]}
 */
export function findRegions(map, width, height, picture) {
  const [x, y] = [picture.width / width, picture.height / height];
  const found = groups(map, width, height).flatMap((pixels) => {
    const mean = pixels.reduce((sum, i) => sum + map[i], 0) / pixels.length;
    const box = smallestRectangle(hull(outline(pixels, width)));
    if (mean < MEAN || Math.min(box.width, box.height) < SMALLEST) return [];
    const grown = (GROWTH * box.width * box.height) / (box.width + box.height); // twice the distance, once for each side
    return [region({ ...box, width: box.width + grown, height: box.height + grown }, x, y)];
  });
  const middle = (/** @type {Region} */ { corners }, /** @type {0 | 1} */ axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / 4;
  return found.sort((a, b) => middle(a, 1) - middle(b, 1) || middle(a, 0) - middle(b, 0));
}

/** The corners of the first and the last pixel of each row. @param {number[]} pixels @param {number} width @returns {Point[]} */
function outline(pixels, width) {
  /** @type {Map<number, Point>} */
  const rows = new Map();
  for (const i of pixels) {
    const [x, y] = [i % width, Math.floor(i / width)];
    const [left, right] = rows.get(y) ?? [x, x];
    rows.set(y, [Math.min(left, x), Math.max(right, x)]);
  }
  return [...rows].flatMap(([y, [left, right]]) => /** @type {Point[]} */ ([[left, y], [right + 1, y], [left, y + 1], [right + 1, y + 1]]));
}

/** Pixels that are text, by connected group. @param {Float32Array} map @param {number} width @param {number} height @returns {number[][]} */
function groups(map, width, height) {
  const seen = new Uint8Array(width * height);
  const all = [];
  for (let first = 0; first < map.length; first++) {
    if (seen[first] || map[first] <= PIXEL) continue;
    seen[first] = 1;
    const group = [first];
    for (let at = 0; at < group.length; at++) {
      const [x, y] = [group[at] % width, Math.floor(group[at] / width)];
      for (let v = Math.max(0, y - 1); v <= Math.min(height - 1, y + 1); v++) {
        for (let u = Math.max(0, x - 1); u <= Math.min(width - 1, x + 1); u++) {
          const i = v * width + u;
          if (seen[i] || map[i] <= PIXEL) continue;
          seen[i] = 1;
          group.push(i);
        }
      }
    }
    all.push(group);
  }
  return all;
}

/**
 * A rectangle of the map in the picture. Text runs along the longer side, from left to right.
 * @param {import('./rectangle.js').Rectangle} box @param {number} x @param {number} y pixels of the picture in one of the map
 */
function region({ center, angle, width, height }, x, y) {
  if (height > 1.5 * width) [angle, width, height] = [angle + Math.PI / 2, height, width];
  if (Math.cos(angle) < 0) angle += Math.PI;
  const [along, across] = [[Math.cos(angle) * width / 2, Math.sin(angle) * width / 2], [-Math.sin(angle) * height / 2, Math.cos(angle) * height / 2]];
  const corners = [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([a, b]) => /** @type {Point} */ (
    [(center[0] + a * along[0] + b * across[0]) * x, (center[1] + a * along[1] + b * across[1]) * y]));
  const side = (/** @type {Point} */ from, /** @type {Point} */ to) => Math.hypot(to[0] - from[0], to[1] - from[1]);
  return { corners, width: side(corners[0], corners[1]), height: side(corners[0], corners[3]) };
}

/** The region as a horizontal line of text. @param {ImageBitmap} picture @param {Region} region @param {number} lineHeight */
export function straightened(picture, { corners: [start, right, , down], width, height }, lineHeight) {
  const lineWidth = Math.max(16, Math.ceil((width * lineHeight) / height / 16) * 16); // few different shapes
  const canvas = new OffscreenCanvas(lineWidth, lineHeight);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.imageSmoothingQuality = 'high';
  const toPicture = new DOMMatrix([
    (right[0] - start[0]) / lineWidth, (right[1] - start[1]) / lineWidth, (down[0] - start[0]) / lineHeight, (down[1] - start[1]) / lineHeight, ...start,
  ]);
  context.setTransform(toPicture.inverse());
  context.drawImage(picture, 0, 0);
  return canvas;
}

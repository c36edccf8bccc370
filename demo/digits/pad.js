// A drawing area for pointer and keys.

import { colour } from '../common.js';

const SIDE = 300; // pixels of the canvas
const STEP = 12; // pixels of an arrow key
const PEN = 26; // pixels of the pen's width
/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] };

/** Strokes on the canvas, as lists of points. */
export class Pad {
  /** @param {HTMLCanvasElement} canvas @param {() => void} changed */
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    this.changed = changed;
    /** @type {[number, number][][]} */
    this.strokes = [];
    /** A picture in place of strokes, until the next one. @type {{ pixels: number[], side: number } | null} */
    this.picture = null;
    /** The pen's position while keys are used, and whether it draws. @type {[number, number] | null} */
    this.pen = null;
    this.draws = false;
    canvas.addEventListener('pointerdown', (event) => this.down(event));
    canvas.addEventListener('pointermove', (event) => event.buttons && this.move(event));
    canvas.addEventListener('keydown', (event) => this.key(event));
    canvas.addEventListener('blur', () => this.lift());
    document.addEventListener('themechange', () => this.draw());
    this.draw();
  }

  /** @param {PointerEvent} event @returns {[number, number]} */
  point(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
  }

  /** @param {PointerEvent} event */
  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.lift();
    this.begin(this.point(event));
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (!this.strokes.length) return;
    for (const part of event.getCoalescedEvents?.() ?? [event]) this.strokes[this.strokes.length - 1].push(this.point(part));
    this.draw();
    this.changed();
  }

  /** Arrows move the pen, space lowers or lifts it, Escape clears. @param {KeyboardEvent} event */
  key(event) {
    const arrow = ARROWS[event.key];
    if (!arrow && event.key !== ' ' && event.key !== 'Escape') return;
    event.preventDefault();
    if (event.key === 'Escape') return this.clear();
    const pen = this.pen ??= [SIDE / 2, SIDE / 4];
    if (arrow) arrow.forEach((by, axis) => { pen[axis] = Math.min(SIDE - PEN / 2, Math.max(PEN / 2, pen[axis] + by)); });
    else if ((this.draws = !this.draws)) return this.begin([...pen]);
    if (this.draws && arrow) {
      this.strokes[this.strokes.length - 1].push([...pen]);
      this.changed();
    }
    this.draw();
  }

  /** @param {[number, number]} point of a new stroke */
  begin(point) {
    this.picture = null;
    this.strokes.push([point]);
    this.draw();
    this.changed();
  }

  /** Ends the use of keys. */
  lift() {
    this.pen = null;
    this.draws = false;
    this.draw();
  }

  clear() {
    this.strokes = [];
    this.picture = null;
    this.lift();
    this.changed();
  }

  /** Replaces the drawing. @param {number[]} pixels from 0 to 255, row by row @param {number} side in pixels */
  showPixels(pixels, side) {
    this.strokes = [];
    this.picture = { pixels, side };
    this.lift();
  }

  /** Replaces the drawing. @param {number[][]} strokes x and y of their points by turns */
  showStrokes(strokes) {
    this.picture = null;
    this.strokes = strokes.map((numbers) => numbers.flatMap((x, i) => (i % 2 ? [] : [/** @type {[number, number]} */ ([x, numbers[i + 1]])])));
    this.lift();
    this.changed();
  }

  drawPicture() {
    const { pixels, side } = this.picture ?? { pixels: [], side: 1 };
    const small = new OffscreenCanvas(side, side);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext('2d'));
    const image = new ImageData(side, side);
    const [r, g, b] = colour('ink').match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0];
    pixels.forEach((value, i) => image.data.set([r, g, b, value], 4 * i));
    context.putImageData(image, 0, 0);
    this.context.drawImage(small, 0, 0, SIDE, SIDE);
  }

  invite() {
    Object.assign(this.context, { font: '18px system-ui, sans-serif', textAlign: 'center', fillStyle: colour('soft') });
    this.context.fillText('Draw here', SIDE / 2, SIDE / 2);
  }

  draw() {
    this.context.clearRect(0, 0, SIDE, SIDE);
    if (this.picture) this.drawPicture();
    else if (!this.strokes.length && !this.pen) this.invite();
    trace(this.context, this.strokes, colour('ink'));
    if (!this.pen) return;
    Object.assign(this.context, { lineWidth: 3, strokeStyle: colour('accent'), fillStyle: colour(this.draws ? 'accent' : 'accent-soft') });
    this.context.beginPath();
    this.context.arc(...this.pen, PEN / 2, 0, 2 * Math.PI);
    this.context.fill();
    this.context.stroke();
  }
}

/**
 * @param {CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D} context
 * @param {[number, number][][]} strokes
 * @param {string} style
 */
export function trace(context, strokes, style) {
  Object.assign(context, { lineWidth: PEN, lineCap: 'round', lineJoin: 'round', strokeStyle: style });
  for (const [first, ...rest] of strokes) {
    context.beginPath();
    context.moveTo(...first);
    context.lineTo(...first);
    for (const point of rest) context.lineTo(...point);
    context.stroke();
  }
}

// Classifies the drawing again with each movement of the pen.

import * as ort from 'pyruntime';
import { $, colour, milliseconds, readyText, Status } from '../common.js';
import { showBars } from './bars.js';
import { Pad, trace } from './pad.js';

const SIZE = 28; // side of the model's input
const INK = 22; // side of the digit in it, as in training

/** pixels: 28 x 28, 0 to 255. @typedef {{ label: number, pixels: number[] }} Sample */

/**
 * Prepares a drawing as in training: scales the digit's bounding box to 8 x 8, then to 22 of 28 pixels.
 * @param {[number, number][][]} strokes
 */
function preprocess(strokes) {
  const points = strokes.flat();
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [left, top] = [Math.min(...xs) - 13, Math.min(...ys) - 13];
  const [width, height] = [Math.max(...xs) + 13 - left, Math.max(...ys) + 13 - top];
  const side = Math.max(width, height, 60);
  const full = surface(300);
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

/** @param {Float32Array} pixels */
function showSeen(pixels) {
  const context = /** @type {CanvasRenderingContext2D} */ (/** @type {HTMLCanvasElement} */ ($('#seen')).getContext('2d'));
  const [r, g, b] = colour('ink').match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0];
  const image = new ImageData(SIZE, SIZE);
  pixels.forEach((value, i) => image.data.set([r, g, b, 255 * value], 4 * i));
  context.putImageData(image, 0, 0);
}

function showNothing() {
  showBars(null);
  showSeen(new Float32Array(SIZE * SIZE));
}

/** Runs the model for one drawing at a time, and after a run only for the latest. */
class Classifier {
  /** @param {ort.InferenceSession} session */
  constructor(session) {
    this.session = session;
    /** @type {Float32Array | null} */
    this.next = null;
    this.busy = false;
    /** Whether to show the results of pending runs. */
    this.shows = false;
  }

  /** The pad was cleared. */
  forget() {
    this.next = null;
    this.shows = false;
  }

  /** @param {Float32Array} pixels */
  async show(pixels) {
    this.next = pixels;
    this.shows = true;
    if (this.busy) return;
    this.busy = true;
    try {
      await this.drain();
    } finally {
      this.busy = false;
    }
  }

  async drain() {
    while (this.next) {
      const image = this.next;
      this.next = null;
      const start = performance.now();
      const { probabilities } = await this.session.run({ image: new ort.Tensor('float32', image, [1, 1, SIZE, SIZE]) });
      if (!this.shows) continue;
      $('#time').textContent = `Run: ${milliseconds(performance.now() - start)}, including messages to the worker and back.`;
      showSeen(image);
      showBars(/** @type {Float32Array} */ (probabilities.data));
    }
  }
}

async function main() {
  const status = new Status($('#status'));
  showNothing();
  /** @type {Classifier | null} */
  let classifier = null;
  const pad = new Pad($('#pad'), () => {
    if (!pad.strokes.length) {
      classifier?.forget();
      return showNothing();
    }
    classifier?.show(preprocess(pad.strokes)).catch((error) => status.failed(error));
  });
  $('#clear').addEventListener('click', () => pad.clear());
  try {
    const session = await ort.InferenceSession.create('digits.onnx', { onProgress: status.progress });
    classifier = new Classifier(session);
    status.done(readyText(session.timings));
    if (pad.strokes.length) pad.changed();
    await samples(classifier, pad);
  } catch (error) {
    status.failed(error);
  }
}

/** Enables the button that shows images of the data set. @param {Classifier} classifier @param {Pad} pad */
async function samples(classifier, pad) {
  const all = /** @type {Sample[]} */ (await (await fetch('samples.json')).json());
  const button = /** @type {HTMLButtonElement} */ ($('#sample'));
  let turn = 0;
  button.disabled = false;
  button.addEventListener('click', () => {
    pad.clear();
    const { pixels } = all[turn++ % all.length];
    classifier.show(Float32Array.from(pixels, (value) => value / 255)).catch((error) => { $('#time').textContent = error.message; });
  });
}

main();

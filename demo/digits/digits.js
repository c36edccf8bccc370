// Classifies the drawing again with each movement of the pen.

import * as ort from 'pyruntime';
import { $, colour, duration, messageOf, readyText, Status } from '../common.js';
import { SteadyTime } from '../lib/steady_time.js';
import { readState, writeState } from '../lib/url_state.js';
import { showBars } from './bars.js';
import { Pad } from './pad.js';
import { preprocess, SIZE } from './preprocess.js';

const WARM_UP = 4; // runs; a drawing has dozens

/** pixels: 28 x 28, 0 to 255. @typedef {{ label: number, pixels: number[] }} Sample */

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
    this.time = new SteadyTime(WARM_UP);
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
      const median = this.time.add(performance.now() - start);
      if (!this.shows) continue;
      if (median !== null) $('#time').textContent = `${duration(median)} a run: the median of the latest runs, with messages to the worker and back.`;
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
    writeState(pad.strokes.length ? pad.strokes.map((stroke) => stroke.flat().map(Math.round)) : null);
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
    await samples(classifier, pad, await readState());
  } catch (error) {
    status.failed(error);
  }
}

/**
 * Enables the button that shows images of the data set, and shows what is in the address: strokes, or an image by its number.
 * @param {Classifier} classifier @param {Pad} pad @param {any} linked
 */
async function samples(classifier, pad, linked) {
  const all = /** @type {Sample[]} */ (await (await fetch('samples.json')).json());
  const button = /** @type {HTMLButtonElement} */ ($('#sample'));
  let turn = 0;
  button.disabled = false;
  const show = (/** @type {number} */ n) => {
    const { pixels } = all[n % all.length];
    writeState(n);
    classifier.forget();
    showNothing();
    pad.showPixels(pixels, SIZE);
    classifier.show(Float32Array.from(pixels, (value) => value / 255)).catch((error) => { $('#time').textContent = messageOf(error); });
  };
  button.addEventListener('click', () => show(turn++));
  if (Number.isInteger(linked) && linked >= 0) show(linked);
  else if (Array.isArray(linked) && !pad.strokes.length) pad.showStrokes(linked);
}

main();

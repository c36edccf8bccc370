// Draws the last seconds: the waveform's range, the probability of speech as a line, speech shaded.

import { colour } from '../common.js';

const FRAMES = 250; // 8 seconds
const THRESHOLD = 0.5;

/** @typedef {{ low: number, high: number, probability: number }} Column */

export class Chart {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    /** @type {Column[]} */
    this.columns = [];
    this.waiting = false;
    const requestDraw = () => this.requestDraw();
    new ResizeObserver(requestDraw).observe(canvas);
    document.addEventListener('themechange', requestDraw);
  }

  /** @param {number} probability @param {Float32Array} frame */
  add(probability, frame) {
    let [low, high] = [0, 0];
    for (const value of frame) [low, high] = [Math.min(low, value), Math.max(high, value)];
    this.columns.push({ low, high, probability });
    if (this.columns.length > FRAMES) this.columns.shift();
    this.requestDraw();
  }

  clear() {
    this.columns = [];
    this.requestDraw();
  }

  /** Draws once before the next repaint, however many frames arrive. */
  requestDraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const width = this.canvas.clientWidth;
    const height = Math.max(180, Math.min(300, width * 0.4));
    const scale = devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * scale, height: height * scale });
    this.canvas.style.height = `${height}px`;
    this.context.scale(scale, scale);
    const step = width / FRAMES;
    const x = (/** @type {number} */ i) => width - (this.columns.length - i) * step;
    this.bands(x, step, height);
    this.scale(width, height);
    this.line(x, step, height);
  }

  /** @param {(i: number) => number} x @param {number} step @param {number} height */
  bands(x, step, height) {
    const [speech, sound] = [colour('accent-soft'), colour('soft')];
    const top = this.columns.reduce((most, { low, high }) => Math.max(most, high, -low), 0.02);
    this.columns.forEach(({ low, high, probability }, i) => {
      if (probability > THRESHOLD) {
        this.context.fillStyle = speech;
        this.context.fillRect(Math.floor(x(i)), 0, Math.floor(x(i + 1)) - Math.floor(x(i)), height); // whole pixels, without seams
      }
      this.context.fillStyle = sound;
      this.context.globalAlpha = 0.55;
      const y = (/** @type {number} */ value) => level(THRESHOLD + (0.45 * value) / top, height);
      this.context.fillRect(x(i), y(high) - 0.5, Math.max(1, step - 0.7), y(low) - y(high) + 1);
      this.context.globalAlpha = 1;
    });
  }

  /** @param {number} width @param {number} height */
  scale(width, height) {
    this.context.strokeStyle = colour('line');
    this.context.fillStyle = colour('soft');
    this.context.font = '11px system-ui, sans-serif';
    for (const share of [0, THRESHOLD, 1]) {
      const y = level(share, height);
      this.context.beginPath();
      this.context.moveTo(0, y);
      this.context.lineTo(width, y);
      this.context.stroke();
      this.context.fillText(share.toFixed(1), 2, y - 4);
    }
  }

  /** @param {(i: number) => number} x @param {number} step @param {number} height */
  line(x, step, height) {
    Object.assign(this.context, { strokeStyle: colour('accent'), lineWidth: 2, lineJoin: 'round' });
    this.context.beginPath();
    this.columns.forEach(({ probability }, i) => this.context.lineTo(x(i) + step / 2, level(probability, height)));
    this.context.stroke();
    this.context.lineWidth = 1;
  }
}

/** @param {number} probability @param {number} height */
const level = (probability, height) => 20 + (height - 26) * (1 - probability);

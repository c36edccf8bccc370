// Draws the probability of speech in the microphone's sound or a generated voice.

import * as ort from 'pyruntime';
import { $, duration, messageOf, readyText, Status } from '../common.js';
import { SteadyTime } from '../lib/steady_time.js';
import { unsupported } from '../lib/unsupported.js';
import { Chart } from './chart.js';
import { Detector, FRAME, RATE } from './detector.js';
import { generated, microphone } from './sources.js';

const chart = new Chart($('#chart'));
const time = new SteadyTime(10, 100);
const stopButton = /** @type {HTMLButtonElement} */ ($('#stop'));
let frames = 0;

/** @param {number} probability @param {Float32Array} frame @param {number} took */
function showFrame(probability, frame, took) {
  chart.add(probability, frame);
  frames++;
  const median = time.add(took);
  $('#probability').textContent = probability.toFixed(3);
  if (median !== null) {
    $('#frame').textContent = duration(median);
    $('#speed').textContent = `${Math.round((1000 * FRAME) / RATE / median)}×`;
  }
  $('#frames').textContent = String(frames);
  $('#verdict').textContent = probability > 0.5 ? 'Speech' : 'No speech';
}

/** Connects one source of sound at a time. */
class Listener {
  /** @param {Detector} detector @param {(error: unknown) => void} failed */
  constructor(detector, failed) {
    this.detector = detector;
    this.failed = failed;
    this.close = () => {};
  }

  /** @param {typeof microphone} source */
  async start(source) {
    this.stop();
    stopButton.disabled = false;
    chart.clear();
    this.detector.reset();
    const say = (/** @type {string} */ text, over = false) => (over ? this.failed(new Error(text)) : ($('#sound').textContent = text));
    try {
      this.close = await source((samples) => this.detector.push(samples), say);
    } catch (error) {
      this.failed(new Error(`No sound: ${messageOf(error)} The generated voice needs no microphone.`, { cause: error }));
    }
  }

  stop() {
    this.close();
    this.close = () => {};
    stopButton.disabled = true;
    $('#sound').textContent = '';
  }
}

async function main() {
  const status = new Status($('#status'));
  try {
    const session = await ort.InferenceSession.create('silero_vad_v5.onnx', { onProgress: status.progress });
    status.done(readyText(session.timings));
    const failed = (/** @type {unknown} */ error) => {
      listener.stop();
      status.failed(error);
    };
    const listener = new Listener(new Detector(session, showFrame, failed), failed);
    const start = (/** @type {typeof microphone} */ source) => {
      status.done(readyText(session.timings));
      listener.start(source);
    };
    $('#microphone').addEventListener('click', () => start(microphone));
    $('#voice').addEventListener('click', () => start(generated));
    $('#stop').addEventListener('click', () => listener.stop());
    for (const id of ['#voice', ...(navigator.mediaDevices ? ['#microphone'] : [])]) $(id).removeAttribute('disabled');
    if (navigator.mediaDevices) return;
    $('#status').after(unsupported('This page may not use a microphone: browsers allow it over HTTPS and on localhost only.', 'The generated voice works without one.'));
  } catch (error) {
    status.failed(error);
  }
}

main();

// Listens to the microphone or to a generated voice and draws the probability of speech.

import * as ort from 'pyruntime';
import { $, milliseconds, quantile, readyText, Status } from '../common.js';
import { Chart } from './chart.js';
import { Detector, FRAME, RATE } from './detector.js';
import { voice } from './voice.js';

const chart = new Chart($('#chart'));
/** @type {number[]} */
const times = [];
let frames = 0;

/** @param {number} probability @param {Float32Array} frame @param {number} took */
function heard(probability, frame, took) {
  chart.add(probability, frame);
  times.push(took);
  if (times.length > 100) times.shift();
  frames++;
  const median = quantile(times, 0.5);
  $('#probability').textContent = probability.toFixed(3);
  $('#frame').textContent = milliseconds(median);
  $('#speed').textContent = `${Math.round((1000 * FRAME) / RATE / median)}×`;
  $('#frames').textContent = String(frames);
  $('#verdict').textContent = probability > 0.5 ? 'Speech' : 'No speech';
}

/** One source of sound at a time. */
class Listener {
  /** @param {Detector} detector */
  constructor(detector) {
    this.detector = detector;
    /** @type {() => void} */
    this.close = () => {};
  }

  /** @param {(context: AudioContext, tap: AudioWorkletNode) => Promise<() => void>} connect returns what ends the source */
  async start(connect) {
    this.stop();
    chart.clear();
    this.detector.reset();
    const context = new AudioContext({ sampleRate: RATE });
    await context.audioWorklet.addModule('tap.js');
    const tap = new AudioWorkletNode(context, 'tap');
    tap.port.onmessage = ({ data }) => this.detector.push(data);
    const end = await connect(context, tap);
    this.close = () => {
      end();
      context.close();
    };
  }

  stop() {
    this.close();
    this.close = () => {};
  }
}

/** @param {AudioContext} context @param {AudioWorkletNode} tap */
async function microphone(context, tap) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true } });
  context.createMediaStreamSource(stream).connect(tap);
  return () => stream.getTracks().forEach((track) => track.stop());
}

/** @param {AudioContext} context @param {AudioWorkletNode} tap */
async function generated(context, tap) {
  const buffer = context.createBuffer(1, 16 * RATE, RATE);
  buffer.copyToChannel(voice(16, RATE), 0);
  const source = new AudioBufferSourceNode(context, { buffer, loop: true });
  source.connect(tap);
  source.connect(context.destination);
  source.start();
  return () => source.stop();
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
    const listener = new Listener(new Detector(session, heard, failed));
    const start = (/** @type {typeof microphone} */ source) => listener.start(source).catch(failed);
    $('#microphone').addEventListener('click', () => start(microphone));
    $('#voice').addEventListener('click', () => start(generated));
    $('#stop').addEventListener('click', () => listener.stop());
    for (const button of document.querySelectorAll('main button')) button.removeAttribute('disabled');
  } catch (error) {
    status.failed(error);
  }
}

main();

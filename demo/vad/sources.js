// Where samples come from: the microphone, or a generated voice.

import { RATE, FRAME } from './detector.js';
import { voice } from './voice.js';

const PATIENCE = 3000; // milliseconds

/** Takes samples. @typedef {(samples: Float32Array) => void} Push */
/** What is to be said of a source, and whether it is over with it. @typedef {(text: string, over?: boolean) => void} Say */

/** Samples as they are heard. @param {Push} push @param {Say} say @returns {Promise<() => void>} ends it */
export async function microphone(push, say) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true } });
  const context = new AudioContext({ sampleRate: RATE });
  const late = setTimeout(() => say('No sound arrives: this machine has no audio device that works', true), PATIENCE);
  await context.audioWorklet.addModule('tap.js');
  const tap = new AudioWorkletNode(context, 'tap');
  tap.port.onmessage = ({ data }) => {
    clearTimeout(late);
    push(data);
  };
  context.createMediaStreamSource(stream).connect(tap);
  return () => {
    clearTimeout(late);
    for (const track of stream.getTracks()) track.stop();
    context.close();
  };
}

/** At the pace of time, whether it can be heard or not. @type {typeof microphone} */
export async function generated(push, say) {
  const samples = voice(16, RATE); // whole frames
  const hush = play(samples, say);
  const begin = performance.now();
  let at = 0;
  const timer = setInterval(() => {
    const due = ((performance.now() - begin) / 1000) * RATE;
    for (; at < due; at += FRAME) push(samples.subarray(at % samples.length, (at % samples.length) + FRAME));
  }, (1000 * FRAME) / RATE);
  return () => {
    clearInterval(timer);
    hush();
  };
}

/** @param {Float32Array<ArrayBuffer>} samples @param {Say} say */
function play(samples, say) {
  const context = new AudioContext({ sampleRate: RATE });
  const buffer = context.createBuffer(1, samples.length, RATE);
  buffer.copyToChannel(samples, 0);
  const source = new AudioBufferSourceNode(context, { buffer, loop: true });
  source.connect(context.destination);
  source.start();
  const late = setTimeout(() => context.currentTime || say('Shown, not heard: this machine has no audio device that works'), PATIENCE);
  return () => {
    clearTimeout(late);
    context.close();
  };
}

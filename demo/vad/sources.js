// Sources of samples: the microphone, or a generated voice.

import { RATE, FRAME } from './detector.js';
import { voice } from './voice.js';

const TIMEOUT = 3000; // milliseconds

/** Takes samples. @typedef {(samples: Float32Array) => void} Push */
/** Shows a message about a source. over: the source has failed. @typedef {(text: string, over?: boolean) => void} Say */

/** @param {Push} push @param {Say} say @returns {Promise<() => void>} stops the source */
export async function microphone(push, say) {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, echoCancellation: true } });
  const context = new AudioContext({ sampleRate: RATE });
  const timeout = setTimeout(() => say('No sound arrives: this device has no working audio input', true), TIMEOUT);
  await context.audioWorklet.addModule('tap.js');
  const tap = new AudioWorkletNode(context, 'tap');
  tap.port.onmessage = ({ data }) => {
    clearTimeout(timeout);
    push(data);
  };
  context.createMediaStreamSource(stream).connect(tap);
  return () => {
    clearTimeout(timeout);
    for (const track of stream.getTracks()) track.stop();
    context.close();
  };
}

/** In real time, even if it is not audible. @type {typeof microphone} */
export async function generated(push, say) {
  const samples = voice(16, RATE); // whole frames
  const stopPlayback = play(samples, say);
  const begin = performance.now();
  let at = 0;
  const timer = setInterval(() => {
    const due = ((performance.now() - begin) / 1000) * RATE;
    for (; at < due; at += FRAME) push(samples.subarray(at % samples.length, (at % samples.length) + FRAME));
  }, (1000 * FRAME) / RATE);
  return () => {
    clearInterval(timer);
    stopPlayback();
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
  const timeout = setTimeout(() => context.currentTime || say('Not audible: this device has no working audio output'), TIMEOUT);
  return () => {
    clearTimeout(timeout);
    context.close();
  };
}

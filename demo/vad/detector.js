// Runs Silero VAD frame by frame and feeds its state back.

import * as ort from 'pyruntime';

export const RATE = 16000;
export const FRAME = 512;
const CONTEXT = 64; // samples of the previous frame that the model needs before each frame

/** The initial state. @returns {ort.Tensor} */
const silence = () => new ort.Tensor('float32', new Float32Array(2 * 128), [2, 1, 128]);

/** Splits a stream of samples into frames and reports the probability of speech in each. */
export class Detector {
  /**
   * @param {ort.InferenceSession} session
   * @param {(probability: number, frame: Float32Array, took: number) => void} onFrame
   * @param {(error: unknown) => void} failed
   */
  constructor(session, onFrame, failed) {
    this.session = session;
    this.onFrame = onFrame;
    this.failed = failed;
    this.rate = new ort.Tensor('int64', [BigInt(RATE)], []);
    this.queue = Promise.resolve();
    this.state = silence();
    this.input = new Float32Array(CONTEXT + FRAME);
    this.filled = 0;
  }

  reset() {
    this.state = silence();
    this.input = new Float32Array(CONTEXT + FRAME);
    this.filled = 0;
  }

  /** @param {Float32Array} samples at 16 kHz, any number */
  push(samples) {
    for (let at = 0; at < samples.length; ) {
      const part = samples.subarray(at, at + FRAME - this.filled);
      this.input.set(part, CONTEXT + this.filled);
      this.filled += part.length;
      at += part.length;
      if (this.filled === FRAME) this.frame();
    }
  }

  frame() {
    const input = this.input;
    this.input = new Float32Array(CONTEXT + FRAME);
    this.input.set(input.subarray(FRAME), 0);
    this.filled = 0;
    this.queue = this.queue.then(() => this.run(input)).catch(this.failed);
  }

  /** @param {Float32Array} input */
  async run(input) {
    const start = performance.now();
    const feeds = { input: new ort.Tensor('float32', input, [1, input.length]), state: this.state, sr: this.rate };
    const { output, stateN } = await this.session.run(feeds);
    this.state = stateN;
    this.onFrame(Number(output.data[0]), input.subarray(CONTEXT), performance.now() - start);
  }
}

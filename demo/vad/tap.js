// In the audio thread: sends blocks of samples to the page.

/** @typedef {{ port: MessagePort }} Processor */
const Base = /** @type {new () => Processor} */ (/** @type {any} */ (globalThis).AudioWorkletProcessor);

class Tap extends Base {
  /** @param {Float32Array[][]} inputs */
  process([[channel]]) {
    if (channel) this.port.postMessage(channel.slice());
    return true;
  }
}

/** @type {any} */ (globalThis).registerProcessor('tap', Tap);

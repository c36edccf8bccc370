// @jax-js/onnx with the same interface. It has 32-bit integers instead of 64-bit ones.

import { blockUntilReady, defaultDevice, init, jit, numpy } from '@jax-js/jax';
import { ONNXModel } from '@jax-js/onnx';
import { typed } from './model.js';

/** @typedef {import('./model.js').Feeds} Feeds */
/** @typedef {import('./model.js').Outputs} Outputs */
/** @typedef {import('@jax-js/jax').numpy.Array} Array */

/** @type {Record<string, (data: any) => any>} */
const NARROW = {
  int64: (data) => Int32Array.from(data, Number), uint64: (data) => Uint32Array.from(data, Number),
  bool: (data) => Int32Array.from(data),
};
/** @type {Record<string, string>} */
const DTYPES = { int64: 'int32', uint64: 'uint32' };

class JaxSession {
  /** @param {ONNXModel} model @param {Feeds} feeds */
  constructor(model, feeds) {
    if (Object.keys(feeds.info.feedback).length) throw new Error('state is not fed back here');
    this.model = model;
    this.call = jit(model.run);
    /** @type {Record<string, Array>} */
    this.inputs = Object.fromEntries(feeds.info.feeds.map((feed) => {
      const { type, dims, bytes } = feeds.at(feed, 0);
      const data = (NARROW[type] ?? ((/** @type {any} */ x) => x))(typed(type, bytes));
      const made = numpy.array(data, { shape: dims, dtype: /** @type {any} */ (DTYPES[type] ?? (type === 'bool' ? 'int32' : type)) });
      return [feed.name, type === 'bool' ? made.astype(/** @type {any} */ ('bool')) : made];
    }));
  }

  /** Results are read back, as the others' are. @returns {Promise<Outputs>} */
  async run() {
    const inputs = Object.fromEntries(Object.entries(this.inputs).map(([name, array]) => [name, array.ref]));
    const outputs = await blockUntilReady(/** @type {any} */ (this.call)(inputs));
    const read = Object.entries(/** @type {Record<string, Array>} */ (outputs)).map(async ([name, array]) => {
      const { shape, dtype } = array;
      return /** @type {const} */ ([name, { type: String(dtype), dims: shape, data: await array.data() }]);
    });
    return Object.fromEntries(await Promise.all(read));
  }

  async release() {
    this.model.dispose();
  }
}

export async function jaxRuntime() {
  await init('wasm');
  defaultDevice('wasm');
  return {
    /** @param {Uint8Array} bytes @param {Feeds} feeds */
    async create(bytes, feeds) {
      return new JaxSession(new ONNXModel(/** @type {any} */ (bytes)), feeds);
    },
  };
}

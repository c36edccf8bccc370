// The same networks in TensorFlow.js. Its convolutions take images as NHWC, so images and weights are turned before.

import * as tf from '@tensorflow/tfjs';
import * as wasm from '@tensorflow/tfjs-backend-wasm';
import { integers } from './net.js';

/** @import { Arrays, Net, Trainer } from './net.js' */
/** @typedef {Record<string, any>} Vars */

/** @param {Arrays} weights @returns {Vars} */
function variables(weights) {
  return tf.tidy(() => Object.fromEntries(Object.entries(weights).map(([name, { data, dims }]) => [name, tf.variable(turned(name, tf.tensor(/** @type {any} */ (data), dims)))])));
}

/** @param {string} name @param {any} w */
function turned(name, w) {
  if (w.rank === 4) return w.transpose([2, 3, 1, 0]);
  return name === 'w3' ? w.reshape([10, 32, 7, 7]).transpose([2, 3, 1, 0]).reshape([-1, 10]) : w;
}

/** @param {any} logits @param {any} target */
function crossEntropy(logits, target) {
  const classes = logits.shape.at(-1);
  return tf.neg(tf.mean(tf.sum(tf.mul(tf.logSoftmax(logits), tf.oneHot(target, classes)), -1)));
}

/** @param {Vars} w @param {{ image: any, target: any }} batch */
function cnn(w, { image, target }) {
  const layer = (/** @type {any} */ x, /** @type {number} */ n) => tf.maxPool(tf.relu(tf.add(tf.conv2d(x, w[`w${n}`], 1, 'same'), w[`b${n}`])), 2, 2, 'valid');
  const flat = layer(layer(image, 1), 2).reshape([image.shape[0], -1]);
  return crossEntropy(tf.add(tf.matMul(flat, w.w3), w.b3), target);
}

/** @param {any} x @param {Vars} w @param {string} name */
function norm(x, w, name) {
  const { mean, variance } = tf.moments(x, -1, true);
  return tf.add(tf.mul(tf.mul(tf.sub(x, mean), tf.rsqrt(tf.add(variance, 1e-5))), w[`${name}_scale`]), w[`${name}_shift`]);
}

/** @param {any} x */
const gelu = (x) => tf.mul(tf.mul(x, 0.5), tf.add(tf.erf(tf.mul(x, Math.SQRT1_2)), 1));

/** @param {any} x @param {Vars} w @param {string} p @param {Record<string, number>} sizes @param {any} mask */
function block(x, w, p, { width, heads, length }, mask) {
  const n = norm(x, w, `${p}attention`);
  const split = (/** @type {string} */ name) => tf.transpose(tf.matMul(n, w[p + name]).reshape([-1, length, heads, width / heads]), [0, 2, 1, 3]);
  const scores = tf.add(tf.mul(tf.matMul(split('q'), split('k'), false, true), (width / heads) ** -0.5), mask);
  const joined = tf.transpose(tf.matMul(tf.softmax(scores), split('v')), [0, 2, 1, 3]).reshape([-1, width]);
  const a = tf.add(x, tf.matMul(joined, w[`${p}o`]));
  const up = gelu(tf.add(tf.matMul(norm(a, w, `${p}feed`), w[`${p}up`]), w[`${p}up_bias`]));
  return tf.add(a, tf.add(tf.matMul(up, w[`${p}down`]), w[`${p}down_bias`]));
}

/** @param {Vars} w @param {{ ids: any, target: any }} batch @param {Record<string, number>} sizes @param {any} mask */
function transformer(w, { ids, target }, sizes, mask) {
  const tokens = tf.matMul(tf.cast(tf.oneHot(ids, sizes.vocabulary), 'float32'), w.embedding);
  let x = tf.add(tokens.reshape([-1, sizes.length, sizes.width]), w.position).reshape([-1, sizes.width]);
  for (let n = 0; n < sizes.layers; n++) x = block(x, w, `${n}.`, sizes, mask);
  return crossEntropy(tf.matMul(norm(x, w, 'last'), w.head), target);
}

/** @param {Arrays} batch */
function tensors(batch) {
  return Object.fromEntries(Object.entries(batch).map(([name, values]) => {
    if (values.type === 'int64') return [name, tf.tensor1d(integers(values), 'int32')];
    return [name, tf.tidy(() => tf.tensor(/** @type {any} */ (values.data), values.dims).transpose([0, 2, 3, 1]))];
  }));
}

/** @param {string} backend */
export const tfjs = (backend) => async (/** @type {Net} */ { info, weights, batches }) => {
  wasm.setWasmPaths('/tfjs-wasm/');
  wasm.setThreadsCount(navigator.hardwareConcurrency);
  const use = async () => {
    if (tf.getBackend() !== backend && !(await tf.setBackend(backend))) throw new Error(`no backend ${backend}`);
  };
  await use();
  const vars = variables(weights);
  const given = batches.map(tensors);
  const mask = info.sizes.length ? tf.tidy(() => tf.mul(tf.sub(1, tf.linalg.bandPart(tf.ones([info.sizes.length, info.sizes.length]), -1, 0)), -1e4)) : null;
  const loss = (/** @type {number} */ n) => /** @type {any} */ (info.kind === 'cnn' ? cnn(vars, /** @type {any} */ (given[n])) : transformer(vars, /** @type {any} */ (given[n]), info.sizes, mask));
  const optimizer = tf.train.adam(info.rate, 0.9, 0.999, 1e-8);
  /** @type {Trainer} */
  const trainer = {
    async step(n) {
      await use();
      const cost = /** @type {any} */ (optimizer.minimize(() => loss(n), true, Object.values(vars)));
      const [value] = await cost.data();
      cost.dispose();
      return value;
    },
    async forward(n) {
      await use();
      const cost = tf.tidy(() => loss(n));
      await cost.data();
      cost.dispose();
    },
    async release() {},
  };
  return trainer;
};

// The same networks in jax-js. Its functions take over their arguments, so what is read again is passed as `.ref`.

import { blockUntilReady, defaultDevice, init, jit, lax, nn, numpy as np, tree, valueAndGrad } from '@jax-js/jax';
import { integers } from './net.js';

/** @import { Arrays, Net, Trainer } from './net.js' */
/** @typedef {Record<string, any>} Vars */

/** @param {any} logits @param {any} target one-hot @returns {any} */
const crossEntropy = (logits, target) => nn.logSoftmax(logits).mul(target).sum(-1).mean().neg();

/** @param {Vars} w @param {Vars} batch */
function cnn(w, { image, target }) {
  const layer = (/** @type {any} */ x, /** @type {any} */ filters, /** @type {any} */ bias) => {
    const made = nn.relu(lax.convGeneralDilated(x, filters, [1, 1], [[1, 1], [1, 1]]).add(bias.reshape([1, -1, 1, 1])));
    const [n, c, h, v] = made.shape;
    return np.max(np.max(made.reshape([n, c, h / 2, 2, v / 2, 2]), 5), 3);
  };
  const pooled = layer(layer(image, w.w1, w.b1), w.w2, w.b2);
  const flat = pooled.reshape([pooled.shape[0], -1]);
  return crossEntropy(np.matmul(flat, np.transpose(w.w3)).add(w.b3), target);
}

/** @param {any} x @param {Vars} w @param {string} name */
function norm(x, w, name) {
  const centred = x.ref.sub(np.mean(x, -1, /** @type {any} */ ({ keepdims: true })));
  const variance = np.mean(centred.ref.mul(centred.ref), -1, /** @type {any} */ ({ keepdims: true }));
  return centred.div(np.sqrt(variance.add(1e-5))).mul(w[`${name}_scale`]).add(w[`${name}_shift`]);
}

/** @param {any} x @param {Vars} w @param {string} p @param {Record<string, number>} sizes @param {any} mask */
function block(x, w, p, { width, heads, length }, mask) {
  const n = norm(x.ref, w, `${p}attention`);
  const split = (/** @type {any} */ n, /** @type {string} */ name, /** @type {number[]} */ order) => np.transpose(np.matmul(n, w[p + name]).reshape([-1, length, heads, width / heads]), order);
  const q = split(n.ref, 'q', [0, 2, 1, 3]);
  const k = split(n.ref, 'k', [0, 2, 3, 1]);
  const v = split(n, 'v', [0, 2, 1, 3]);
  const weights = nn.softmax(np.matmul(q, k).mul((width / heads) ** -0.5).add(mask));
  const joined = np.transpose(np.matmul(weights, v), [0, 2, 1, 3]).reshape([-1, width]);
  const a = x.add(np.matmul(joined, w[`${p}o`]));
  const up = nn.gelu(np.matmul(norm(a.ref, w, `${p}feed`), w[`${p}up`]).add(w[`${p}up_bias`]), { approximate: false });
  return a.add(np.matmul(up, w[`${p}down`]).add(w[`${p}down_bias`]));
}

/** @param {Record<string, number>} sizes */
const transformer = (sizes) => (/** @type {Vars} */ w, /** @type {Vars} */ { ids, target }) => {
  const tokens = np.matmul(ids, w.embedding).reshape([-1, sizes.length, sizes.width]);
  let x = tokens.add(w.position).reshape([-1, sizes.width]);
  const below = np.tril(np.ones([sizes.length, sizes.length]));
  const mask = /** @type {any} */ (below).sub(1).mul(1e4);
  for (let n = 0; n < sizes.layers; n++) x = block(x, w, `${n}.`, sizes, n + 1 < sizes.layers ? mask.ref : mask);
  return crossEntropy(np.matmul(norm(x, w, 'last'), w.head), target);
};

/** Adam, in the same compiled function as the gradients. @param {any} loss @param {number} rate */
const stepOf = (loss, rate) => jit((/** @type {Vars} */ w, /** @type {Vars} */ m, /** @type {Vars} */ v, /** @type {any} */ c1, /** @type {any} */ c2, /** @type {Vars} */ batch) => {
  const [value, g] = /** @type {any} */ (valueAndGrad(loss))(tree.ref(w), batch);
  /** @type {Vars[]} */
  const [w2, m2, v2] = [{}, {}, {}];
  for (const name of Object.keys(w)) {
    m2[name] = m[name].mul(0.9).add(g[name].ref.mul(0.1));
    v2[name] = v[name].mul(0.999).add(g[name].ref.mul(g[name]).mul(0.001));
    const change = m2[name].ref.mul(c1.ref).div(np.sqrt(v2[name].ref.mul(c2.ref)).add(1e-8));
    w2[name] = w[name].sub(change.mul(rate));
  }
  c1.dispose();
  c2.dispose();
  return /** @type {any} */ ([w2, m2, v2, value]);
});

/** @param {Arrays} batch @param {Record<string, number>} sizes */
function arrays(batch, sizes) {
  return Object.fromEntries(Object.entries(batch).map(([name, values]) => {
    if (values.type === 'float32') return [name, np.array(/** @type {any} */ (values.data), { shape: values.dims })];
    const data = integers(values);
    return [name, nn.oneHot(np.array(data, { dtype: np.int32 }), sizes.vocabulary ?? 10)];
  }));
}

/** @param {Net} net @returns {Promise<Trainer>} */
export async function jax({ info, weights, batches }) {
  await init('wasm');
  defaultDevice('wasm');
  const given = batches.map((batch) => arrays(batch, info.sizes));
  const loss = info.kind === 'cnn' ? cnn : transformer(info.sizes);
  const step = stepOf(loss, info.rate);
  const value = jit(/** @type {any} */ (loss));
  /** @type {any} */
  let w = arrays(weights, info.sizes);
  let m = tree.map((/** @type {any} */ x) => np.zerosLike(x.ref), w);
  let v = tree.map((/** @type {any} */ x) => np.zerosLike(x.ref), w);
  let t = 0;
  return {
    async step(n) {
      t++;
      const [c1, c2] = [np.array(1 / (1 - 0.9 ** t)), np.array(1 / (1 - 0.999 ** t))];
      const made = await blockUntilReady(/** @type {any} */ (step)(w, m, v, c1, c2, tree.ref(given[n])));
      [w, m, v] = made;
      return (await made[3].data())[0];
    },
    async forward(n) {
      await (/** @type {any} */ (value)(tree.ref(w), tree.ref(given[n]))).data();
    },
    async release() {},
  };
}

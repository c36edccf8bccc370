// Plain evaluators of the nets of kit/page_sequences.py: what a call should give, computed from nothing but its arguments.

/** Small integers, which all providers compute without rounding. */
export const numbers = (count, seed) => Float32Array.from({ length: count }, (_, i) => (seed * 31 + i * 7) % 11 - 5);

/** x (rows, inner) times w (inner, columns), as float64. */
export function product(x, w, rows, inner, columns) {
  const y = new Float64Array(rows * columns);
  for (let r = 0; r < rows; r++) {
    for (let i = 0; i < inner; i++) {
      const factor = x[r * inner + i];
      if (factor) for (let c = 0; c < columns; c++) y[r * columns + c] += factor * w[i * columns + c];
    }
  }
  return y;
}

/** A layer with LoRA adapters. weights: of the adapters by name */
export function gemm({ weight, bias, adapters }, x, rows, active = {}) {
  const whole = Float64Array.from(weight);
  for (const [name, factor] of Object.entries(active)) adapters[name].delta.forEach((v, i) => { whole[i] += factor * v; });
  const y = product(x, whole, rows, weight.length / bias.length, bias.length);
  return y.map((v, i) => v + bias[i % bias.length]);
}

/** Two layers with a Relu between. */
export function wide({ first, second, size }, x, rows) {
  const hidden = product(x, first, rows, size, size).map((v) => Math.max(v, 0));
  return product(hidden, second, rows, size, size);
}

/** The sum over all steps of a history: [step][batch * width]. */
export const total = (history) => history.reduce((sum, step) => sum.map((v, i) => v + step[i]), new Float64Array(history[0].length));

/** A history as the tensor of a cache: (batch, steps, width). */
export function cache(history, batch, width) {
  const steps = history.length;
  const found = new Float64Array(batch * steps * width);
  history.forEach((step, s) => step.forEach((v, i) => {
    const row = Math.floor(i / width);
    found[(row * steps + s) * width + i % width] = v;
  }));
  return found;
}

const WORDS = 97;
const WINDOW = 3;
const sum = (tokens) => tokens.reduce((a, b) => a + b, 0);

/** The next token after a text, by the name of the decoder: the rules of kit/counting_decoders.py. */
const RULES = {
  sums: sum,
  convolution: (tokens) => tokens.slice(-WINDOW).reverse().reduce((found, token, n) => found + token * [5, 3, 1][n], 0),
  window: (tokens) => tokens.at(-1) + sum(tokens.slice(-WINDOW)),
  recurrence(tokens) {
    let [h, c] = [0, 0];
    for (const token of tokens) {
      h = (3 * h + token) % WORDS;
      c = (c + h) % WORDS;
    }
    return c + h;
  },
};

/** The tokens that follow a prompt. */
export function written(decoder, prompt, count) {
  const tokens = [...prompt];
  for (let n = 0; n < count; n++) tokens.push(RULES[decoder](tokens) % WORDS);
  return tokens.slice(prompt.length);
}

/** A linear layer that learns by gradient descent from squared errors. Weights w (inner, columns) and b (columns,). */
export class Learner {
  step = 0;
  /** Sums of gradients that wait, their number, and the sum of their losses, NaN after `load`. */
  waiting = { w: null, b: null, count: 0, losses: 0 };

  constructor(w, b, rate) {
    Object.assign(this, { w: Float64Array.from(w), b: Float64Array.from(b), rate });
  }

  copy() {
    const found = new Learner(this.w, this.b, this.rate);
    return Object.assign(found, { step: this.step, waiting: { ...this.waiting } });
  }

  /** After a checkpoint was loaded, which has no losses. */
  loaded() {
    const found = this.copy();
    if (found.waiting.count) found.waiting.losses = NaN;
    return found;
  }

  outputs(x, rows) {
    const columns = this.b.length;
    return product(x, this.w, rows, this.w.length / columns, columns).map((v, i) => v + this.b[i % columns]);
  }

  loss(x, target, rows) {
    return this.outputs(x, rows).reduce((found, v, i) => found + (v - target[i]) ** 2, 0) / target.length;
  }

  gradients(x, target, rows) {
    const columns = this.b.length;
    const inner = this.w.length / columns;
    const errors = this.outputs(x, rows).map((v, i) => 2 * (v - target[i]) / target.length);
    const [w, b] = [new Float64Array(this.w.length), new Float64Array(columns)];
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        b[c] += errors[r * columns + c];
        for (let i = 0; i < inner; i++) w[i * columns + c] += x[r * inner + i] * errors[r * columns + c];
      }
    }
    return { w, b };
  }

  accumulate(x, target, rows) {
    const { w, b } = this.gradients(x, target, rows);
    const { waiting } = this;
    const add = (one, two) => (one ? one.map((v, i) => v + two[i]) : two);
    const losses = waiting.losses + this.loss(x, target, rows);
    this.waiting = { w: add(waiting.w, w), b: add(waiting.b, b), count: waiting.count + 1, losses };
  }

  /** A step with the mean of the gradients that wait, or with their sum. */
  apply(isSum = false) {
    const { w, b, count } = this.waiting;
    const rate = this.rate / (isSum ? 1 : count);
    this.w = this.w.map((v, i) => v - rate * w[i]);
    this.b = this.b.map((v, i) => v - rate * b[i]);
    this.waiting = { w: null, b: null, count: 0, losses: 0 };
    this.step++;
  }
}

// A provider of float32 matrix products: a plain loop in JavaScript.

/** What happens, for the page. */
const channel = new BroadcastChannel('products');

class Products {
  name = 'products';
  options = { least: 1000, label: 'none' };

  open(options, threads) {
    const made = Object.assign(new Products(), options);
    made.tell('open', options, threads > 0);
    return made;
  }

  tell(...what) {
    if (this.label !== 'none') channel.postMessage([this.label, ...what]);
  }

  supports({ kind, routine, inputs, outputs, epilogue }) {
    if (kind !== 'call' || routine !== 'matmul' || epilogue) return 'only matrix products';
    if ([...inputs, ...outputs].some(({ type }) => type !== 'float32')) return 'only float32';
    const work = 2 * outputs[0].dims.concat(inputs[0].dims.at(-1)).reduce((product, n) => product * (typeof n === 'number' ? n : 64), 1);
    return work < this.least ? 'too small' : '';
  }

  compile({ kernels: [{ operands }], inputs }) {
    const [first, second] = operands.map((id) => inputs.findIndex((input) => input.id === id));
    return (arrays, [out], symbols) => {
      this.tell('bind', symbols, arrays.map(({ dims }) => dims), out.constructor.name);
      const [a, b] = [arrays[first], arrays[second]];
      const [n, k] = b.dims.toReversed();
      return () => {
        this.tell('job');
        const rows = a.length / k;
        const m = a.dims.at(-2);
        for (let row = 0; row < rows; row++) {
          const base = b.dims.length > 2 ? Math.floor(row / m) * k * n : 0;
          for (let column = 0; column < n; column++) {
            let sum = 0;
            for (let i = 0; i < k; i++) sum += a[row * k + i] * b[base + i * n + column];
            out[row * n + column] = sum;
          }
        }
      };
    };
  }

  runStart() {
    this.tell('start');
  }

  runEnd(error) {
    this.tell('end', error && error.name);
  }

  close() {
    this.tell('close');
  }
}

export default new Products();

// A provider of float32 products that reads views of its operands, applies what follows a product, and has weights transposed.

const OPERATIONS = { add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, max: Math.max, min: Math.min, tanh: Math.tanh };
const DIMS = { '+': (a, b) => a + b, '*': (a, b) => a * b };

const dimOf = (dim, symbols) => (Array.isArray(dim) ? dim.slice(1).map((d) => dimOf(d, symbols)).reduce(DIMS[dim[0]])
  : typeof dim === 'string' ? symbols[dim] : dim);

/** Whether this evaluates it. */
const knows = ([operation, ...operands]) => (['const', 'arg', 'index', 'dim'].includes(operation)
  || (operation === 'at' ? operands.slice(1).every(knows) : operation in OPERATIONS && operands.every(knows)));

function evaluate([operation, ...operands], { axes, value, arrays, symbols }) {
  const inner = (expression) => evaluate(expression, { axes, value, arrays, symbols });
  if (operation === 'const') return Number(operands[0]);
  if (operation === 'dim') return dimOf(operands[0], symbols);
  if (operation === 'arg') return value;
  if (operation === 'index') return axes[operands[0]];
  if (operation !== 'at') return OPERATIONS[operation](...operands.map(inner));
  const array = arrays.get(operands[0]);
  return array[operands.slice(1).map(inner).reduce((at, index, axis) => at * array.dims[axis] + index, 0)];
}

/** A function of the element's coordinates in operand n. */
function reader(call, n, arrays, symbols) {
  const array = arrays.get(call.operands[n]);
  const view = call.strided[n];
  const strides = view ? view.strides.map((stride) => dimOf(stride, symbols)) : [array.dims[1], 1];
  const offset = view ? dimOf(view.offset, symbols) : 0;
  const [down, across] = call.packed.includes(n) ? strides.toReversed() : strides;
  return (i, j) => array[offset + i * down + j * across];
}

export default {
  name: 'layouts',
  supports({ kind, routine, inputs, outputs }) {
    if (kind !== 'call' || routine !== 'matmul' || outputs[0].dims.length !== 2) return 'only products of matrices';
    return [...inputs, ...outputs].every(({ type }) => type === 'float32') ? '' : 'only float32';
  },
  reads: (call, operand, { strides }) => strides.length === 2,
  fuses: (call, out, order, epilogue) => order.every((axis, n) => axis === n) && epilogue !== null && knows(epilogue),

  packs({ operands, inputs }, operand) {
    if (operand !== 1) return null;
    const { id, type, dims } = inputs.find((input) => input.id === operands[1]);
    return { type, dims: dims.toReversed(), expression: ['at', id, ['index', 1], ['index', 0]] };
  },

  compile({ kernels: [call], inputs }) {
    new BroadcastChannel('layouts').postMessage({ strided: Object.keys(call.strided), packed: call.packed, epilogue: call.epilogue?.[0] });
    return (given, [out], symbols) => {
      const arrays = new Map(inputs.map(({ id }, n) => [id, given[n]]));
      const [a, b] = [0, 1].map((n) => reader(call, n, arrays, symbols));
      const first = call.strided[0]?.tensor ?? inputs.find(({ id }) => id === call.operands[0]);
      const depth = dimOf(first.dims.at(-1), symbols);
      return () => {
        for (let n = 0; n < out.length; n++) {
          const axes = [Math.floor(n / out.dims[1]), n % out.dims[1]];
          let value = 0;
          for (let k = 0; k < depth; k++) value += a(axes[0], k) * b(k, axes[1]);
          out[n] = call.epilogue ? evaluate(call.epilogue, { axes, value, arrays, symbols }) : value;
        }
      };
    };
  },
};

// A provider that takes whole segments: consecutive elementwise kernels run as one loop. It is asynchronous everywhere.

const OPERATIONS = {
  add: (a, b) => a + b, sub: (a, b) => a - b, mul: (a, b) => a * b, div: (a, b) => a / b, neg: (a) => -a, max: Math.max, min: Math.min,
  exp: Math.exp, tanh: Math.tanh, abs: Math.abs,
};
const later = () => new Promise((resolve) => setTimeout(resolve, 1));

/** Why the expression is not the same for all elements of tensors of one shape, or "". */
function refused(expression, kernel) {
  if (!expression) return 'too large';
  const [operation, ...operands] = expression;
  if (operation === 'const') return '';
  if (operation === 'at') {
    const [id, ...coordinates] = operands;
    const { type, dims } = kernel.inputs.find((input) => input.id === id);
    const isSame = JSON.stringify(dims) === JSON.stringify(kernel.outputs[0].dims) && coordinates.every(([kind, axis], n) => kind === 'index' && axis === n);
    return isSame && type === 'float32' ? '' : 'only tensors of one shape';
  }
  return operation in OPERATIONS ? operands.map((operand) => refused(operand, kernel)).find(Boolean) ?? '' : `no ${operation}`;
}

/** A function of the number of the element. @param arrays by id of the tensor */
function compiled([operation, ...operands], arrays) {
  if (operation === 'const') return () => Number(operands[0]);
  if (operation === 'at') return (n) => arrays.get(operands[0])[n];
  const inner = operands.map((operand) => compiled(operand, arrays));
  return (n) => OPERATIONS[operation](...inner.map((value) => value(n)));
}

export default {
  name: 'segments',
  takesParts: true,

  async open() {
    await later();
    return Object.create(this);
  },

  supports: (kernel) => (kernel.kind === 'map' ? refused(kernel.expression, kernel) : 'only maps'),

  compile({ kernels, inputs, outputs }) {
    return async (given, results) => {
      await later();
      const arrays = new Map(inputs.map(({ id }, n) => [id, given[n]]));
      outputs.forEach(({ id }, n) => arrays.set(id, results[n]));
      const steps = kernels.map(({ kind, expression, inputs: [base], outputs: [{ id }] }) => {
        if (kind === 'alias') return arrays.set(id, arrays.get(base.id)) && null;
        if (!arrays.has(id)) arrays.set(id, new Float32Array(results[0].length));
        return { target: arrays.get(id), value: compiled(expression, arrays) };
      }).filter(Boolean);
      return async () => {
        await later();
        for (const { target, value } of steps) for (let n = 0; n < target.length; n++) target[n] = value(n);
      };
    };
  },
};

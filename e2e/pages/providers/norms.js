// A provider of whole nodes: LayerNormalization over the last axis, without a bias.

const channel = new BroadcastChannel('norms');
const shapeOf = ({ type, dims }) => [type, dims];

class Norms {
  name = 'norms';
  options = { cost: 0 };

  open({ cost }) {
    return Object.assign(new Norms(), { price: cost });
  }

  supports = () => 'only whole nodes';

  supportsNode(node, inputs, attributes) {
    if (node !== 'LayerNormalization' || inputs.length !== 2) return false;
    channel.postMessage([node, inputs.map(shapeOf), attributes]);
    return true;
  }

  cost() {
    return this.price;
  }

  compile({ kernels: [call], inputs, constant }) {
    const [x, scale] = call.operands.map((id) => inputs.findIndex((input) => input.id === id));
    channel.postMessage([call.routine, [x, scale].map((n) => constant[n]), call.attributes]);
    const { epsilon = 1e-5 } = call.attributes;
    return (arrays, [out]) => () => {
      const width = arrays[scale].length;
      for (let start = 0; start < out.length; start += width) {
        const row = arrays[x].subarray(start, start + width);
        const mean = row.reduce((sum, value) => sum + value, 0) / width;
        const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / width;
        row.forEach((value, n) => { out[start + n] = (value - mean) / Math.sqrt(variance + epsilon) * arrays[scale][n]; });
      }
    };
  }
}

export default new Norms();

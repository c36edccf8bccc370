const ort = require('pyruntime'); // or import, in a module

async function read() {
  const session = await ort.InferenceSession.create('digits.onnx');
  const image = new ort.Tensor('float32', new Float32Array(28 * 28), [1, 1, 28, 28]);
  const { probabilities } = await session.run({ image });
  return probabilities.data.indexOf(Math.max(...probabilities.data));
}

read().then((digit) => { document.body.textContent = `A blank is read as ${digit}.`; });

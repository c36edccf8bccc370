// The package by require(). The session is not released: the program ends all the same.

const ort = require('pyruntime');

async function main() {
  const session = await ort.InferenceSession.create('models/add.onnx', { intraOpNumThreads: 2 });
  const a = new ort.Tensor('float32', Float32Array.of(1, 2, 3, 4, 5, 6), [2, 3]);
  const { c } = await session.run({ a, b: a });
  console.log(JSON.stringify([...c.data]));
}

main();

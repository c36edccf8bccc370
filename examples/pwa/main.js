import * as ort from 'pyruntime';
import { install } from 'pyruntime/offline';

const session = await ort.InferenceSession.create('digits.onnx');
const image = new ort.Tensor('float32', new Float32Array(28 * 28), [1, 1, 28, 28]);
const { probabilities } = await session.run({ image });
document.body.textContent = `A blank is read as ${probabilities.data.indexOf(Math.max(...probabilities.data))}.`;

// Without a network, offline.sw.js (a copy from dist/) answers from the files stored here.
await install({ files: ['./', 'main.js', 'app.webmanifest'], models: ['digits.onnx'] });
document.body.append(' The network may go.');

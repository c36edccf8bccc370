'use client';

import { InferenceSession, Tensor, stats } from 'pyruntime';
import { useEffect, useState } from 'react';

async function read() {
  const session = await InferenceSession.create('/digits.onnx', { intraOpNumThreads: 2 }); // in public/
  const image = new Tensor('float32', new Float32Array(28 * 28), [1, 1, 28, 28]);
  const { probabilities } = await session.run({ image });
  const { threads } = await stats();
  await session.release();
  return `A blank is read as ${probabilities.data.indexOf(Math.max(...probabilities.data))}, by ${threads + 1} threads.`;
}

export default function Page() {
  const [text, setText] = useState('…');
  useEffect(() => { read().then(setText, (error) => setText(String(error))); }, []); // in the browser, once
  return <main>{text}</main>;
}

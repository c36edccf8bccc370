'use client';

import { Digit } from '../Digit.jsx';

const blank = new Float32Array(28 * 28);

export default function Page() {
  return <Digit pixels={blank} />;
}

'use client';

import { useEffect } from 'react';

export function Check() {
  useEffect(() => { import('../page.js').then(({ check }) => check()); }, []); // onnxruntime-web cannot be imported on the server
  return null;
}

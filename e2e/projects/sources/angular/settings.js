// Relative to <base href="/">; a worker needs addresses that its own place does not change.

export const paths = { pyruntime: '/engine/', 'onnxruntime-web': '/peer/' };
export const options = () => ({});

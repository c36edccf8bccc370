// This package's files lie beside the bundle.

export const paths = { 'onnxruntime-web': '/peer/' };
export const options = () => ({});

export default { resolve: { alias: { 'onnxruntime-web': 'pyruntime' } } };

export * from 'onnxruntime-web/wasm';

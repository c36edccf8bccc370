const ort = require('pyruntime');

// A bundle lies elsewhere than the engine's files.
ort.env.wasm.wasmPaths = '/dist/';
globalThis.ort = ort;

// TensorFlow.js without its types, which would replace the browser's types of WebGPU in all files.

declare const anything: any;
export = anything;

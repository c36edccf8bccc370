// The pages of the site, in the order of the navigation. scripts/site.mjs lays them out; `View code` shows `code`.
// A page whose folder has no index.html is left out.

/**
 * script, styles: beside the page's index.html; imports: further names for `import`, from the root of the site; code: files from the
 * root, the first one first.
 * @typedef {{ path: string, name: string, title: string, about: string, script: string, styles?: string[], imports?: Record<string, string>, code: string[] }} Page
 */

/** @type {Page[]} */
export const PAGES = [
  {
    path: 'chat/', name: 'Chat', title: 'Chat in this page', script: 'chat.js', styles: ['chat.css'],
    imports: { 'pyruntime/extras': 'dist/extras.mjs' },
    about: 'An assistant of 135 million weights answers in this page, also without a network.',
    code: ['chat/assistant.js', 'chat/chat.js', 'chat/conversation.js', 'chat/keep.js', 'chat/programs.js'],
  },
  {
    path: 'playground/', name: 'Playground', title: 'Write an operator in Python', script: 'playground.js', styles: ['playground.css'],
    about: 'Write an ONNX operator in Python and watch the WebAssembly and the WGSL that it becomes.',
    code: ['playground/playground.js', 'playground/compile.py', 'playground/values.js'],
  },
  {
    path: 'model/', name: 'Your model', title: 'Open your own model', script: 'model.js', styles: ['model.css'],
    imports: { '@huggingface/tokenizers': 'text/tokenizers.min.mjs' },
    about: 'Open an ONNX model of yours: its graph, where each node runs, how long it takes, and its code.',
    code: ['model/model.js', 'model/inputs.js', 'model/token_inputs.js', 'model/text_field.js', 'model/results.js'],
  },
  {
    path: 'benchmark/', name: 'Benchmark', title: 'Compare with onnxruntime-web', script: 'benchmark.js', styles: ['benchmark.css'],
    about: 'Measure twelve models here, in turns with onnxruntime-web.',
    code: ['benchmark/benchmark.js', 'benchmark/turns.js'],
  },
  {
    path: 'gpu/', name: 'GPU', title: 'Measure your GPU', script: 'gpu.js', styles: ['gpu.css'],
    about: 'What WebGPU can do on this device, and how near the kernels come: a report to keep, share and compare.',
    code: ['gpu/gpu.js', 'gpu/measure.js', 'gpu/probes.js', 'gpu/report.js'],
  },
  {
    path: 'text/', name: 'Write', title: 'Generate text', script: 'text.js', styles: ['text.css'],
    imports: { '@huggingface/tokenizers': 'text/tokenizers.min.mjs' },
    about: 'A small language model writes in this page, about a token per millisecond.',
    code: ['text/decoder.js', 'text/text.js'],
  },
  {
    path: 'vad/', name: 'Voice', title: 'Is someone speaking?', script: 'vad.js',
    about: 'Silero VAD listens to the microphone and draws the probability of speech.',
    code: ['vad/detector.js', 'vad/vad.js', 'vad/sources.js'],
  },
  {
    path: 'camera/', name: 'Camera', title: 'Read a digit with the camera', script: 'camera.js', styles: ['../digits/digits.css'],
    about: 'Hold a written digit in front of the camera: each frame is classified, on the GPU or on WebAssembly.',
    code: ['camera/camera.js', 'camera/picture.js', 'camera/pixels.js'],
  },
  {
    path: 'digits/', name: 'Draw', title: 'Draw a digit', script: 'digits.js', styles: ['digits.css'],
    about: 'A small network classifies your drawing again with each movement of the pen.',
    code: ['digits/digits.js', 'digits/preprocess.js', 'digits/pad.js'],
  },
  {
    path: 'teach/', name: 'Teach it', title: 'Teach it your symbols', script: 'teach.js', styles: ['../lib/training.css', 'teach.css'],
    about: 'Draw a few of each of your own symbols, and watch a network learn them in this page.',
    code: ['lib/learner.js', 'lib/trainer.js', 'teach/drawings.js', 'lib/classifier_page.js', 'teach/teach.js'],
  },
  {
    path: 'tune/', name: 'Tune', title: 'Tune a chat model', script: 'tune.js', styles: ['../lib/training.css', '../speak/speak.css', 'tune.css'],
    imports: { 'pyruntime/extras': 'dist/extras.mjs' },
    about: 'The model of the page Chat learns the manner of a text of yours, with LoRA: before and after side by side.',
    code: ['tune/student.js', 'lib/trainer.js', 'tune/tune.js', 'tune/programs.js'],
  },
  {
    path: 'speak/', name: 'Speak', title: 'Speak like this', script: 'speak.js', styles: ['../lib/training.css', 'speak.css'],
    about: 'A small language model learns a text of yours, character by character, and then writes by itself.',
    code: ['speak/writer.js', 'lib/trainer.js', 'speak/alphabet.js', 'speak/speak.js'],
  },
  {
    path: 'yours/', name: 'Make it yours', title: 'Make a picture net yours', script: 'yours.js', styles: ['../lib/training.css', 'yours.css'],
    about: 'The last layers of a network for pictures learn from your photographs.',
    code: ['lib/learner.js', 'lib/trainer.js', 'yours/photographs.js', 'lib/classifier_page.js', 'yours/yours.js'],
  },
  {
    path: 'notebook/', name: 'Python', title: 'Python in this page', script: 'notebook.js',
    about: 'Run Python beside the engine, in this page.',
    code: ['notebook/notebook.js'],
  },
];

/** @type {Page} */
export const HOME = {
  path: '', name: 'Home', title: 'pyruntime: ONNX models in the browser', script: 'read/home.js', styles: ['read/home.css'],
  about: 'ONNX models in the browser, compiled there by Python. Read the text in a photograph, in this page.',
  code: ['read/reader.js', 'read/regions.js', 'read/home.js'],
};

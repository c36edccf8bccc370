import * as ort from '/dist/ort.mjs';

globalThis.ort = ort; // for own_worker.js, which comes after it

import * as ort from '/dist/ort.mjs';

globalThis.ort = ort;

// A page of the extension, and a part of its background.
import * as ort from './dist/ort.mjs';

globalThis.ort = ort;

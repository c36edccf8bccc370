// Starts Python with the engine, as a page does, and makes an image of its memory
// (docs/design/startup.md#memory-image).

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { loadPyodide } from 'pyodide';
import { crc32 } from '../web/common/crc32.js';
import { buildNumber, STATE } from '../web/worker/interpreter/memory_image.js';
import { ENGINE, ENV, NO_PACKAGES, STARTED } from '../web/worker/interpreter/python.js';
import { countOf, imageOf } from './memory_image.mjs';

const PLACES = 'import gc; some = []; gc.collect(); gc.freeze(); [id(str), id(some)]';
const STARTS = 4; // number of starts that are compared to find words that differ
const NEAR = 4; // words

/**
 * Uses the unsplit interpreter: this code calls functions of the second half, whose tables are not in the image.
 * @param {string} dist folder of the files from which a page starts Python @param {string} whole folder of Pyodide's
 * own files
 * @param {string} glue Pyodide's JavaScript, for Node.js @param {string} build its name @param {Uint8Array} code that
 * restores the memory
 */
export async function snapshot(dist, whole, glue, build, code) {
  const [stdlib, engine] = await Promise.all(['python_stdlib.zip', 'engine.zip'].map((name) => readFile(join(dist, name))));
  const asm = (await import(pathToFileURL(glue).href)).default;
  const settings = (indexURL) => ({
    indexURL, stdLibURL: join(dist, 'python_stdlib.zip'), lockFileContents: JSON.stringify(NO_PACKAGES),
    packageBaseUrl: dist, env: { ...ENV }, _sysExecutable: ENV._, createPyodideModule: asm,
  });
  const starts = [];
  while (starts.length < STARTS) starts.push(await memoryBefore(settings(dist)));
  const initial = await memoryBefore(settings(whole));
  return atOneTime(async () => {
    const pyodide = await loadPyodide(settings(whole));
    pyodide.FS.writeFile(ENGINE, engine);
    pyodide.runPython(`${STARTED}\npyruntime.compiler.collection.collect_when_idle()`); // python.js calls it
    return image(pyodide, initial, starts, code, { build: buildNumber(build), stdlib: crc32(stdlib), engine: crc32(engine) });
  });
}

/** Runs an action with fixed clock and time zone, because memory contains times of files and the zone, and builds must
 * be equal. @template T @param {() => Promise<T>} action */
async function atOneTime(action) {
  const { now } = Date;
  process.env.TZ = 'UTC';
  Date.now = () => Date.UTC(1980, 0, 1);
  return action().finally(() => { Date.now = now; });
}

/** Returns the memory before Python has run. */
async function memoryBefore(settings) {
  let memory;
  const enough = new Error();
  await loadPyodide({
    ...settings, _loadSnapshot: Promise.resolve(new Uint8Array(STATE)),
    createPyodideModule: async (options) => {
      memory = (await settings.createPyodideModule(options)).HEAPU32.slice();
      throw enough;
    },
  }).catch((error) => { if (error !== enough) throw error; });
  return memory;
}

function image(pyodide, initial, [first, ...others], code, of) {
  const { _module: module, _api: api } = pyodide;
  const [text, some] = pyodide.runPython(PLACES).toJs();
  api.config._makeSnapshot = true;
  const made = pyodide.makeMemorySnapshot();
  const [, start] = new Uint32Array(made.buffer, 0, 2);
  const words = new Uint32Array(made.slice(start).buffer);
  const stack = module._emscripten_stack_get_end();
  const trampoline = (module.__PyRuntime + module.HEAP32[module.__PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET >> 2]) >> 2;
  const own = ownWords(first, others, stack >> 2, (n) => words[n] === initial[n]);
  if (!own.includes(trampoline)) own.push(trampoline);
  const heap = module.HEAPU32[module._emscripten_get_sbrk_ptr() >> 2] - module._malloc_footprint();
  const end = endOf(words, heap);
  const collected = headOf(words, some - 8, heap, end);
  return imageOf({ first, initial, words }, made.subarray(0, start), code, { ...of, own, stack, heap, end, collected, text });
}

/** Returns the words that differ between starts, and nearby words that Python does not change: a flag of the clock
 * differed in one start of 150. */
function ownWords(first, others, count, leftAlone) {
  const differ = [];
  for (let n = 0; n < count; n++) if (others.some((memory) => memory[n] !== first[n])) differ.push(n);
  const near = differ.flatMap((at) => Array.from({ length: 2 * NEAR + 1 }, (_, n) => at - NEAR + n)).filter(leftAlone);
  return [...new Set([...differ, ...near])];
}

/** Returns the end of the allocator's chunks. */
function endOf(words, heap) {
  let at = heap >> 2;
  for (let count = countOf(words[at + 1]); count > 2 && at + count < words.length; count = countOf(words[at + 1])) at += count + 1;
  return at << 2;
}

/** Finds the list of objects that the collector ignores, from one of them. */
function headOf(words, some, heap, end) {
  const outside = [];
  let node = some;
  do {
    node = words[node >> 2] & ~3;
    if (node < heap || node >= end) outside.push(node);
  } while (node !== some);
  if (outside.length !== 1) throw new Error(`${outside.length} objects of the collector are outside of the heap`);
  return outside[0];
}

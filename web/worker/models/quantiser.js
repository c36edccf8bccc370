// The worker's part of `quantize`: Python reads the model's files and decides the steps, which page/training/quantize.js runs.

import { SessionFailed } from '../../common/errors.js';
import { readerOf } from '../files/reader.js';
import { beside, closeAll, openFiles, ownFile } from './model_files.js';

/** @import { CreateParams, QuantiseParams, QuantiseStep } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { ModelFile } from '../files/model_file.js' */
/** @import { Interpreter } from '../interpreter/interpreter.js' */
/** @import { Python } from '../interpreter/python.js' */
/** @import { OnProgress } from './model_files.js' */
/** Python's PageQuantizer. @typedef {{ next(answer: unknown): { toJs(how: object): QuantiseStep }, read(offset: number, size: number): { toJs(): Uint8Array, destroy(): void }, destroy(): void }} Proxy */
/** @typedef {{ python: Python, proxy: Proxy, files: ModelFile[] }} Open */

/** By number. @type {Map<number, Open>} */
const open = new Map();
let next = 1;

/**
 * Answers a call for one quantisation.
 * @param {QuantiseParams} params @param {OnProgress} progress @param {Stop | null} stop @param {Interpreter} interpreter
 * @returns {Promise<number | QuantiseStep | Uint8Array | null>}
 */
export async function quantise(params, progress, stop, interpreter) {
  if (params.how === 'open') return begin(params, progress, stop, interpreter);
  const found = open.get(params.number);
  if (!found) throw new SessionFailed('the quantisation has ended');
  const { python, proxy } = found;
  if (params.how === 'next') return python.stoppable(stop, () => step(python, proxy, params.answer));
  if (params.how === 'read') return python.guard(() => bytes(proxy.read(params.offset, params.size)));
  open.delete(params.number);
  proxy.destroy();
  closeAll(found.files);
  return null;
}

/** @param {CreateParams & { quantising: object }} params @param {OnProgress} progress @param {Stop | null} stop @param {Interpreter} interpreter */
async function begin({ model, external, quantising }, progress, stop, interpreter) {
  const starting = interpreter.start(progress);
  starting.catch(() => {}); // its error is handled where it is awaited
  const files = await openFiles([{ path: '', origin: model }, ...external], progress, stop);
  try {
    const python = await starting;
    const read = readerOf(files);
    const { size } = ownFile(files);
    const sizes = () => Object.fromEntries([...files].filter(([path]) => path).map(([path, file]) => [path, file.size]));
    const missing = 'url' in model ? python.missing(read, size, sizes()) : [];
    const more = await openFiles(missing.map((path) => ({ path, origin: beside(model, path) })), progress, stop);
    for (const [path, file] of more) files.set(path, file);
    const proxy = python.guard(() => python.engine.quantizer(read, size, JSON.stringify(sizes()), JSON.stringify(quantising)));
    stop?.check();
    open.set(next, { python, proxy, files: [...files.values()] });
    return next++;
  } catch (error) {
    closeAll(files.values());
    throw error;
  }
}

/** The next step. @param {Python} python @param {Proxy} proxy @param {unknown} answer to the last one @returns {QuantiseStep} */
function step({ pyodide }, proxy, answer) {
  return bytes(proxy.next(answer === null ? undefined : pyodide.toPy(answer)));
}

/** A value of Python, which is destroyed. @param {any} value */
function bytes(value) {
  const copy = value.toJs({ dict_converter: Object.fromEntries, create_pyproxies: false });
  value.destroy();
  return copy;
}

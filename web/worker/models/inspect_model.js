// What a model is and what it will take, told before it is downloaded (docs/design/storage.md#remote-inspection).

import { InvalidModel } from '../../common/errors.js';
import { gpuFor } from './open_model.js';
import { beside, plain } from './model_files.js';
import { fetchGraph } from './fetch_graph.js';
import { LARGE } from './model_file.js';
import { PartialFile, openPartialFile } from './partial_file.js';
import { codeFeatures } from '../wasm_features.js';

/** @typedef {import('../../common/protocol.js').CreateParams} CreateParams */

const WHOLE = 2 ** 32; // bytes that a linear memory can have
const NEAR = 1 << 16; // bytes that are fetched with what Python misses
const TOLD = 8; // GiB: the most that browsers tell of

/**
 * @param {CreateParams} params @param {import('./model_files.js').OnProgress} progress
 * @param {import('../interpreter/interpreter.js').Interpreter} interpreter @param {import('../../common/stop.js').Stop | null} stop
 * @returns {Promise<import('../../common/protocol.js').Inspection>}
 */
export async function inspectModel(params, progress, interpreter, stop) {
  const signal = stop?.controller.signal;
  try {
    const booted = interpreter.start(progress);
    booted.catch(() => {}); // told where it is awaited
    const given = [{ path: '', origin: params.model }, ...params.external.map(({ path, origin }) => ({ path: plain(path), origin }))];
    const files = new Map(await Promise.all(given.map(async ({ path, origin }) => /** @type {const} */ ([path, await openPartialFile(origin, signal)]))));
    await fetchGraph(/** @type {PartialFile} */ (files.get('')));
    const gpu = await gpuFor(params);
    const python = await booted;
    const options = { ...params.options, ...params.limits, ...codeFeatures(params.options.fixedSimd), threads: params.threads, gpu: gpu?.adapter ?? null };
    for (;;) {
      stop?.check();
      const told = inspectParts(python, files, options, stop);
      if (!told.missing) return described(told, files, params.limits.memoryLimit);
      const { name, offset, size } = told.missing;
      const file = files.get(name);
      if (file) await file.get(offset, Math.min(Math.max(size, NEAR), file.size - offset));
      else files.set(name, await openPartialFile(externalOf(params.model, name), signal));
    }
  } catch (error) {
    stop?.check();
    throw error;
  }
}

/** @param {import('../interpreter/python.js').Python} python @param {Map<string, PartialFile>} files @param {object} options @param {import('../../common/stop.js').Stop | null} stop */
function inspectParts(python, files, options, stop) {
  const size = (/** @type {string} */ name) => /** @type {PartialFile} */ (files.get(name)).size;
  const external = Object.fromEntries([...files.keys()].filter(Boolean).map((name) => [name, size(name)]));
  const read = (/** @type {number} */ offset, /** @type {number} */ least, name = '', most = least) => files.get(name)?.peek(offset, least, most);
  return python.stoppable(stop, () => JSON.parse(python.engine.inspect(read, size(''), JSON.stringify({ ...options, external }))));
}

/** External data that no option names: beside the model. @param {import('../../common/protocol.js').Origin} model @param {string} name */
function externalOf(model, name) {
  if (!('url' in model)) throw new InvalidModel(`external data "${name}" was not given`, { hint: 'list it in the externalData option' });
  return beside(model, name);
}

/** With what the place tells. @param {any} report @param {Map<string, PartialFile>} files @param {number} [limit] bytes of linear memory */
function described(report, files, limit = Infinity) {
  const sum = (/** @type {'size' | 'fetched'} */ key) => [...files.values()].reduce((all, file) => all + file[key], 0);
  const held = [...files.values()].reduce((all, { size }) => all + (size < LARGE ? size : 0), 0);
  return { ...report, size: sum('size'), fetched: sum('fetched'), fits: fits(report.memory, held, limit) };
}

/** @param {{ linear: number, further: number } | null} memory @param {number} size of files that the worker holds @param {number} given */
function fits(memory, size, given) {
  if (!memory) return { here: null, why: 'its memory is known when it is compiled for feeds' };
  const limit = Math.min(given, WHOLE + memory.further);
  const text = `it takes ${memory.linear} bytes of linear memory`;
  if (memory.linear > limit) return { here: false, why: `${text}, a session has ${limit} at most` };
  const gibibytes = /** @type {{ deviceMemory?: number }} */ (globalThis.navigator ?? {}).deviceMemory ?? TOLD;
  const whole = memory.linear + size;
  if (gibibytes < TOLD && whole > gibibytes * 2 ** 30) return { here: false, why: `${text}, with files that stay in memory ${whole}, the device has ${gibibytes} GiB` };
  return { here: true, why: `${text} of ${limit}, with files that stay in memory ${whole}` };
}

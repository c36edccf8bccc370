// Describes a model and the memory that it needs, before it is downloaded (docs/design/storage.md#remote-inspection).

import { InvalidModel } from '../../common/errors.js';
import { gpuFor } from './choose_gpu.js';
import { beside, plain } from './model_files.js';
import { fetchGraph } from './fetch_graph.js';
import { LARGE } from '../files/model_file.js';
import { PartialFile, openPartialFile } from '../files/partial_file.js';
import { codeFeatures } from '../wasm_features.js';

/** @import { CreateParams, Inspection } from '../../common/protocol.js' */

const MAX_MEMORY = 2 ** 32; // bytes of a linear memory
const READ_AHEAD = 1 << 16; // least bytes of a fetch when Python needs more of a file
const MAX_REPORTED = 8; // GiB: browsers report no more device memory

/**
 * @param {CreateParams} params @param {import('./model_files.js').OnProgress} progress
 * @param {import('../interpreter/interpreter.js').Interpreter} interpreter @param {import('../../common/stop.js').Stop | null} stop
 * @returns {Promise<import('../../common/protocol.js').Inspection>}
 */
export async function inspectModel(params, progress, interpreter, stop) {
  const signal = stop?.controller.signal;
  try {
    const booted = interpreter.start(progress);
    booted.catch(() => {}); // its error is handled where it is awaited
    const listed = [{ path: '', origin: params.model }, ...params.external.map(({ path, origin }) => ({ path: plain(path), origin }))];
    const opened = await Promise.all(listed.map(({ origin }) => openPartialFile(origin, signal)));
    const files = new Map(listed.map(({ path }, n) => [path, opened[n]]));
    await fetchGraph(/** @type {PartialFile} */ (files.get('')));
    const { gpu, candidate } = await gpuFor(params);
    const python = await booted;
    const features = codeFeatures(params.options.fixedSimd);
    const options = { ...params.options, ...params.limits, ...features, threads: params.threads, gpu: (gpu ?? candidate)?.adapter ?? null };
    for (;;) {
      stop?.check();
      const report = inspectParts(python, files, options, stop);
      if (!report.missing) return described(report, files, params.limits.memoryLimit);
      const { name, offset, size } = report.missing;
      const file = files.get(name);
      if (file) await file.get(offset, Math.min(Math.max(size, READ_AHEAD), file.size - offset));
      else files.set(name, await openPartialFile(externalOf(params.model, name), signal));
    }
  } catch (error) {
    stop?.check();
    throw error;
  }
}

/**
 * Python's report, or the part of a file that Python still needs.
 * @param {import('../interpreter/python.js').Python} python @param {Map<string, PartialFile>} files @param {object} options
 * @param {import('../../common/stop.js').Stop | null} stop
 */
function inspectParts(python, files, options, stop) {
  const size = (/** @type {string} */ name) => /** @type {PartialFile} */ (files.get(name)).size;
  const external = Object.fromEntries([...files.keys()].filter(Boolean).map((name) => [name, size(name)]));
  const read = (/** @type {number} */ offset, /** @type {number} */ min, name = '', max = min) => files.get(name)?.peek(offset, min, max);
  return python.stoppable(stop, () => JSON.parse(python.engine.inspect(read, size(''), JSON.stringify({ ...options, external }))));
}

/**
 * The origin of external data that the caller did not list.
 * @param {import('../../common/protocol.js').Origin} model @param {string} name
 */
function externalOf(model, name) {
  if (!('url' in model)) throw new InvalidModel(`external data "${name}" was not given`, { hint: 'list it in the externalData option' });
  return beside(model, name);
}

/**
 * Adds sizes, and whether the model fits the device.
 * @param {Pick<Inspection, 'memory'>} report @param {Map<string, PartialFile>} files @param {number} [limit] bytes of linear memory
 */
function described(report, files, limit = Infinity) {
  const sum = (/** @type {'size' | 'fetched'} */ key) => [...files.values()].reduce((all, file) => all + file[key], 0);
  const inMemory = [...files.values()].reduce((all, { size }) => all + (size < LARGE ? size : 0), 0);
  return { ...report, size: sum('size'), fetched: sum('fetched'), fits: fits(report.memory, inMemory, limit) };
}

/**
 * @param {{ linear: number, further: number } | null} memory @param {number} size of files in the worker's memory
 * @param {number} memoryLimit
 */
function fits(memory, size, memoryLimit) {
  if (!memory) return { here: null, why: 'its memory is known when it is compiled for feeds' };
  const limit = Math.min(memoryLimit, MAX_MEMORY + memory.further);
  const text = `it takes ${memory.linear} bytes of linear memory`;
  if (memory.linear > limit) return { here: false, why: `${text}, a session has ${limit} at most` };
  const gibibytes = /** @type {{ deviceMemory?: number }} */ (globalThis.navigator ?? {}).deviceMemory ?? MAX_REPORTED;
  const whole = memory.linear + size;
  const withFiles = `with files that stay in memory ${whole}`;
  if (gibibytes < MAX_REPORTED && whole > gibibytes * 2 ** 30) {
    return { here: false, why: `${text}, ${withFiles}, the device has ${gibibytes} GiB` };
  }
  return { here: true, why: `${text} of ${limit}, ${withFiles}` };
}

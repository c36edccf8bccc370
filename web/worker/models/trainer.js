// What a session that trains does in the worker besides runs: reads and writes weights, and writes the model's file with them.

import { InvalidInput } from '../../common/errors.js';
import { floatsIn } from '../../common/half_values.js';
import { mergedWeight } from './merged_weights.js';
import { readerOf } from '../files/reader.js';
import { StateValues } from './state_values.js';

/** @import { RunsOfSteps, WireTensor } from '../../common/protocol.js' */
/** @import { Model } from '../../session/model.js' */
/** @import { Source } from './types.js' */
/** @import { Values } from './state_values.js' */
/** @typedef {[size: number, start: number, data: string, weight: string, dtype: string, file: string, merged?: import('./merged_weights.js').Merged]} Piece see pyruntime/onnx/write.py */

export class Trainer extends StateValues {
  /** Of a session with a limit of memory, in which only the executor that runs has any. @type {Model | null} */
  alone = null;

  /** @override @type {StateValues['during']} */
  async during(executor, names, run) {
    if (this.alone && this.holder !== executor) {
      await this.leave();
      this.alone.table.freeOthers();
    }
    return super.during(executor, names, run);
  }

  /** One for another model of the session, with the weights at the start. */
  another() {
    return new Trainer();
  }

  /**
   * @param {Model} model @param {Source | undefined} source of the model @param {'read' | 'update' | 'replace' | 'export' | 'places' | 'alone' | 'steps'} how @param {Values | RunsOfSteps} given
   * @returns {Promise<Values>} the file as "model"
   */
  async answer(model, source, how, given) {
    if (how === 'steps') return { results: await steps(model, /** @type {RunsOfSteps} */ (given)) };
    const values = /** @type {Values} */ (given);
    if (how === 'export') return { model: await this.file(model, source) };
    if (how === 'places') return readPlaces(/** @type {Source} */ (source), values.places);
    if (how === 'read') return this.values(model);
    if (how === 'alone') this.alone = model;
    else this[how](values);
    return {};
  }

  /** All values, also of weights that no run has changed yet, which an executor has. @param {Model} model @returns {Promise<Values>} */
  values(model) {
    return model.withLatest(async (executor) => {
      if (!this.holder && executor) await this.enter(executor);
      return this.read();
    });
  }

  /** The bytes of the model's file with the current weights. @param {Model} model @param {Source | undefined} source @returns {Promise<Uint8Array>} */
  async file(model, source) {
    const values = await this.values(model);
    if (!source || !model.compiler.exportPlan) throw new InvalidInput('the file of the model is not at hand');
    /** @type {Piece[]} */
    const pieces = JSON.parse(await model.compiler.exportPlan());
    const read = readerOf(source.files);
    const whole = new Uint8Array(pieces.reduce((sum, [size]) => sum + size, 0));
    let at = 0;
    for (const [size, start, data, weight, dtype, file, merged] of pieces) {
      if (merged) values[weight] = mergedWeight(merged, dtype, values[weight], values, read, fromHex);
      if (weight && !values[weight]) throw new InvalidInput(`the session has no value of "${weight}" yet`, { hint: 'make a step first' });
      whole.set(weight ? newWeight(values[weight], dtype) : data ? fromHex(data) : read(start, size, file), at);
      at += size;
    }
    return whole;
  }
}

/**
 * The results of runs, one after the other, up to one that changes nothing, and before one that fails.
 * @param {Model} model @param {RunsOfSteps} given
 */
async function steps(model, { output, runs }) {
  /** @type {number[]} */
  const found = [];
  for (const feeds of runs) {
    try {
      const { [output]: result } = await model.run(feeds, { [output]: null }, null);
      found.push(.../** @type {Float32Array} */ (/** @type {WireTensor} */ (result).data));
    } catch {
      break; // the page makes this step again, whose error it shows
    }
    if (!(/** @type {number} */ (found.at(-2)) > 0)) break;
  }
  return new Uint8Array(Float32Array.from(found).buffer);
}

/** Parts of a file beside the model. @param {Source} source @param {Uint8Array} asked JSON: the file, and names with places in it @returns {Values} */
function readPlaces({ files }, asked) {
  const { file, places } = JSON.parse(new TextDecoder().decode(asked));
  const read = readerOf(files);
  return Object.fromEntries(places.map((/** @type {[string, number, number]} */ [name, start, size]) => [name, read(start, size, file).slice()]));
}

/** A weight, which may have 16 bits in the file. @param {Uint8Array} bytes @param {string} dtype in the file */
function newWeight(bytes, dtype) {
  if (dtype !== 'float16' && dtype !== 'bfloat16') return bytes;
  return new Uint8Array(floatsIn(dtype, new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)).buffer);
}

/** @param {string} text */
const fromHex = (text) => Uint8Array.from({ length: text.length / 2 }, (_, n) => parseInt(text.slice(2 * n, 2 * n + 2), 16));

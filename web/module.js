// `pyruntime/module`: runs a model where code cannot be compiled from bytes, as in edge workers. `pyruntime export --module` writes
// the model as one `.wasm` file: its kernels, with the Program and its weights in a custom section. One thread, no Python, no GPU.

import { checkFeeds, checkFetches, metadata } from './page/tensors/check_feeds.js';
import { unpackValue } from './page/tensors/wire_tensors.js';
import { InvalidInput, InvalidModel, SessionFailed } from './common/errors.js';
import { mapValues } from './common/records.js';
import { Executor } from './run/executor.js';
import { valuesOf } from './session/value_info.js';
import { ExportedProgram } from './worker/programs/program_file.js';

/** @import { Tensor } from 'onnxruntime-common' */
/** @import { WireValue } from './common/protocol.js' */
/** @typedef {Record<string, Tensor | Tensor[] | null>} Feeds */

export * from './common/errors.js';
export { Tensor } from './page/tensors/checked_tensor.js';

const SECTION = 'pyruntime'; // as pyruntime/native/tools/wasm_module.py writes it
const noFile = () => { throw new InvalidModel('this module has no weights', { hint: 'export it again' }); };

/** A model of a module. Its methods have the meanings of onnxruntime's `InferenceSession`. */
export class InferenceSession {
  /** @type {Executor | null} */
  #executor;
  #inputs;
  #outputs;
  #uses;

  /** @param {Executor} executor @param {string} info of the Program */
  constructor(executor, info) {
    const { inputs, outputs, about } = valuesOf(info);
    this.#executor = executor;
    this.#inputs = inputs;
    this.#outputs = outputs;
    this.#uses = about.uses;
    this.inputNames = inputs.map(({ name }) => name);
    this.outputNames = outputs.map(({ name }) => name);
  }

  /** @param {WebAssembly.Module} module an import of the file, or what `WebAssembly.compileStreaming` makes of it */
  static async create(module) {
    if (!(module instanceof WebAssembly.Module)) {
      throw new InvalidInput('a WebAssembly.Module is expected', { hint: 'import the file of pyruntime export --module' });
    }
    const [section] = WebAssembly.Module.customSections(module, SECTION);
    if (!section) throw new InvalidModel('this module holds no model', { hint: 'pyruntime export model.onnx model.wasm --module' });
    const program = new ExportedProgram(new Uint8Array(section));
    const executor = await Executor.create({ ...program.main(), module }, noFile, null, { shared: false });
    return new InferenceSession(executor, program.info);
  }

  /**
   * @param {Feeds} feeds @param {string[] | Record<string, null>} [fetches] names of the outputs to compute, all by default
   * @returns {Promise<Record<string, Tensor>>}
   */
  async run(feeds, fetches = this.outputNames) {
    if (!this.#executor) throw new SessionFailed('this session is released', { hint: 'create another' });
    const names = Array.isArray(fetches) ? fetches : Object.keys(fetches);
    checkFetches(names, this.#outputs);
    const isNeeded = (/** @type {string} */ input) => names.some((name) => this.#uses[name]?.includes(input) ?? true);
    const given = checkFeeds(feeds, this.#inputs, isNeeded);
    const wire = /** @type {Record<string, WireValue>} */ (/** @type {unknown} */ (given));
    const results = await this.#executor.run(wire, Object.fromEntries(names.map((name) => [name, null])));
    return mapValues(results, (value, name) => /** @type {Tensor} */ (unpackValue(name, value, null, null)));
  }

  /** Types and shapes, by onnxruntime's names. */
  get inputMetadata() {
    return this.#inputs.map(metadata);
  }

  get outputMetadata() {
    return this.#outputs.map(metadata);
  }

  async release() {
    this.#executor?.release();
    this.#executor = null;
  }
}

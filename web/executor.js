// Runs a Program in the browser. Mirrors pyruntime/executor.py.

import { PyRuntimeError } from './errors.js';

/** @typedef {import('./protocol.js').WireTensor} WireTensor */
/** @typedef {import('./protocol.js').ValueInfo} ValueInfo */

export class Executor {
  constructor() {
    /** @type {ValueInfo[]} */
    this.inputs = [];
    /** @type {ValueInfo[]} */
    this.outputs = [];
  }

  /**
   * @param {import('./program.js').ProgramData} program
   * @param {import('./python.js').Read} read
   * @param {import('./python.js').Python} python
   * @param {{ threads: number, thread: string }} host
   * @returns {Promise<Executor>}
   */
  static async create(program, read, python, host) {
    throw new PyRuntimeError('no executor yet');
  }

  /** @param {Record<string, WireTensor>} feeds @param {Record<string, WireTensor | null>} fetches @returns {Promise<Record<string, WireTensor>>} */
  async run(feeds, fetches) {
    throw new PyRuntimeError('no executor yet');
  }

  release() {}
  memoryReport() { return {}; }
  explain() { return {}; }
  arenaBytes() { return 0; }
}

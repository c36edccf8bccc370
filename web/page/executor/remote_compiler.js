// Compiles for a session in the page by calling the worker, which has Python. Programs, their weights and the results of host steps
// are requested when they are needed.

/** @import { ProgramData } from '../../common/program.js' */
/** @import { Caller, Compiled, CompiledProgram, HostArray, How } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { ReadFile } from '../../run/environment.js' */
/** @import { Compiler } from '../../session/compiler.js' */

/** @implements {Compiler} */
export class RemoteCompiler {
  info = '';
  needs = '';
  timings = '';
  compiled = 0;
  canCompile = true;
  hasFallback = false;

  /** @param {Caller} caller @param {number} session @param {Compiled} compiled */
  constructor(caller, session, compiled) {
    this.caller = caller;
    this.session = session;
    Object.assign(this, compiled);
  }

  /** @param {How} how @param {unknown} given @param {Stop | null} stop @param {string[]} [outputs] @returns {Promise<(ProgramData | null)[]>} */
  async ask(how, given, stop, outputs) {
    const params = { session: this.session, how, given, outputs };
    const { programs, compiled } = await this.caller.call('compile', params, { watch: watched(stop) });
    Object.assign(this, compiled);
    return programs.map((program) => program && this.receive(program));
  }

  /** @param {CompiledProgram} program @returns {ProgramData} */
  receive({ number, header, blob, timings }) {
    return { header, blob, python: { number, timings, destroy: () => this.notify('forget', { program: number }) } };
  }

  /** Sends a call without waiting for it; ignores its failure. @param {'release' | 'forget'} call @param {object} params */
  notify(call, params) {
    this.caller.call(call, { session: this.session, ...params }).catch(() => {});
  }

  destroy() {
    this.notify('release', {});
  }

  async main() {
    return (await this.ask('main', null, null))[0];
  }

  /** @param {object} feeds @param {Stop | null} stop @param {string[]} [outputs] */
  async specialise(feeds, stop, outputs) {
    return (await this.ask('specialise', feeds, stop, outputs))[0];
  }

  /** @param {object} feeds @param {Stop | null} stop */
  async forSizes(feeds, stop) {
    return (await this.ask('forSizes', feeds, stop))[0];
  }

  /** @param {Record<string, string>} nodes */
  async leaveGpu(nodes) {
    await this.ask('leaveGpu', nodes, null);
  }

  /** @param {string[]} names */
  async splitDims(names) {
    await this.ask('splitDims', names, null);
  }

  /** @param {object} feeds */
  async allResults(feeds) {
    return /** @type {ProgramData[]} */ (await this.ask('allResults', feeds, null));
  }

  /** @param {object} feeds */
  async halfRanges(feeds) {
    return (await this.ask('halfRanges', feeds, null))[0];
  }

  /** @type {import('../../run/environment.js').HostSteps['host']} */
  host({ number }, { id }, inputs, env, stop) {
    return this.caller.call('host', { session: this.session, program: number, id, inputs, symbols: [...env] }, { watch: watched(stop) });
  }

  /** @param {ProgramData} program @returns {Promise<ReadFile>} */
  async weights({ header }) {
    const weights = header.constants.flatMap((constant) => ('source' in constant ? [constant] : []));
    const places = weights.map(({ source, offset, size }) => /** @type {[string, number, number]} */ ([source, offset, size]));
    const found = places.length ? await this.caller.call('weights', { session: this.session, places }) : [];
    const windows = new Map(places.map((place, n) => [place.join(), found[n]]));
    return (offset, size, source = '') => /** @type {Uint8Array} */ (windows.get([source, offset, size].join()));
  }
}

/** @param {Stop | null} stop @returns {import('../../common/protocol.js').Watch | null} */
function watched(stop) {
  if (!stop) return null;
  const { signal } = stop.controller;
  return (action) => {
    signal.addEventListener('abort', action, { once: true });
    return () => signal.removeEventListener('abort', action);
  };
}

// The Programs of a model as one file: what an earlier page compiled, for all feeds or each for some.

import { parse, toBytes } from './program_file.js';

/** @typedef {import('../../common/program.js').ProgramData} ProgramData */
/** info, needs: JSON, as the compiler knows the model. @typedef {{ info: string, needs: string, programs: Map<string, ProgramData> }} Kept */

const WORD = 4; // bytes of the length of the head, which is JSON: { info, needs, keys, sizes }

/** @param {Kept} kept @returns {Uint8Array<ArrayBuffer>} */
export function packed({ info, needs, programs }) {
  const files = [...programs.values()].map(({ header, blob }) => toBytes(header, blob));
  const head = new TextEncoder().encode(JSON.stringify({ info, needs, keys: [...programs.keys()], sizes: files.map(({ length }) => length) }));
  const bytes = new Uint8Array(files.reduce((sum, { length }) => sum + length, WORD + head.length));
  new DataView(bytes.buffer).setUint32(0, head.length, true);
  bytes.set(head, WORD);
  let at = WORD + head.length;
  for (const file of files) {
    bytes.set(file, at);
    at += file.length;
  }
  return bytes;
}

/** Throws what is not whole. @param {Uint8Array} bytes @returns {Kept} */
export function unpacked(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const { info, needs, keys, sizes } = JSON.parse(new TextDecoder().decode(bytes.subarray(WORD, WORD + length)));
  let at = WORD + length;
  const programs = sizes.map((/** @type {number} */ size) => {
    const { header, blob } = parse(bytes.subarray(at, at += size));
    return { header, blob, python: { timings: '{}', destroy() {} } };
  });
  return { info, needs, programs: new Map(keys.map((/** @type {string} */ key, /** @type {number} */ i) => [key, programs[i]])) };
}

/**
 * They in the place of Python, which starts when something else is asked for, and then answers all.
 * @implements {Compiler}
 */
export class CachedCompiler {
  /** @param {Kept} kept @param {() => Promise<Opened>} open Python, and the model in it */
  constructor(kept, open) {
    this.kept = kept;
    this.open = open;
    /** @type {Opened | null} */
    this.opened = null;
    /** @type {Promise<Opened> | null} */
    this.opening = null;
    const now = () => this.opened?.proxy;
    this.proxy = {
      info: kept.info,
      get needs() { return now()?.needs ?? kept.needs; },
      get timings() { return now()?.timings ?? '{}'; },
      destroy: () => { this.opening?.then(({ proxy }) => proxy.destroy(), () => {}); },
    };
  }

  /** Once, whoever asks; after a failure, again. */
  python() {
    this.opening ??= this.open().then(
      (opened) => this.opened = opened,
      (error) => { this.opening = null; throw error; },
    );
    return this.opening;
  }

  main() {
    return this.opened ? this.opened.python.main(this.opened.proxy) : this.kept.programs.get('') ?? null;
  }

  /** @param {unknown} _ @param {Record<string, unknown>} feeds @param {Stop | null} stop */
  async specialise(_, feeds, stop) {
    const { python, proxy } = await this.python();
    return python.specialise(proxy, feeds, stop);
  }

  async fallBack() {
    const { python, proxy } = await this.python();
    python.fallBack(proxy);
  }

  /** @param {unknown} _ @param {string[]} names */
  async takeApart(_, names) {
    const { python, proxy } = await this.python();
    python.takeApart(proxy, names);
  }

  /** @param {unknown} _ @param {object} feeds */
  async watched(_, feeds) {
    const { python, proxy } = await this.python();
    return python.watched(proxy, feeds);
  }

  /** @param {unknown} _ @param {object} feeds */
  async tuning(_, feeds) {
    const { python, proxy } = await this.python();
    return python.tuning(proxy, feeds);
  }

  /** @type {import('../../run/environment.js').HostSteps['host']} */
  async host(program, step, inputs, env, stop) {
    return (await this.python()).python.host(program, step, inputs, env, stop);
  }
}

/** @typedef {import('../../session/compiler.js').Compiler} Compiler */
/** @typedef {import('../../common/stop.js').Stop} Stop */
/** @typedef {{ python: import('../interpreter/python.js').Python, proxy: import('../interpreter/python.js').ModelProxy }} Opened */

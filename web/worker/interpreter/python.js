// Pyodide with the engine. Python compiles models here; runs do not need it.

import { loadPyodide } from 'pyodide';
import { fromPayload, InvalidInput, SessionFailed, Terminated } from '../../common/errors.js';
import { warn } from '../../common/log.js';
import { mark } from '../../common/marks.js';
import { platform } from '../../common/platform.js';
import { download, downloadImage, importModule, watchDownloads } from './engine_files.js';
import { deferFinalizers } from './finalizers.js';
import { addLazyFile, takeReadError } from './lazy_files.js';
import { readImage, restore, STATE } from './memory_image.js';
import { PythonModel } from './python_model.js';

/** @import { Assets } from '../../common/protocol.js' */
/** @import { Stop } from '../../common/stop.js' */
/** @import { ReadFile } from '../../run/environment.js' */
/** @import { PyodideAPI } from 'pyodide' */
/** @import { PyProxy } from 'pyodide/ffi' */
/**
 * module: Pyodide's JavaScript; compiled: its WebAssembly, if the page compiles it.
 * @typedef {{ module: Promise<{ default(settings: unknown): Promise<import('./memory_image.js').EmscriptenModule> }>, compiled: Promise<WebAssembly.Module | null> | null }} Parts
 */

export const ENGINE = '/lib/engine.zip';
const LIBRARY = '/lib/python314.zip'; // where Pyodide puts its standard library
const PREFIX = 'pyruntime: ';

/** The environment is part of the memory image, so it is the same in all pages; so are hashes of strings. */
export const ENV = { PYTHONHASHSEED: '0', LANG: 'C.UTF-8', _: './this.program' };

/**
 * Python code that every session needs. The image includes its effects, because Python's parser is slow when its code is cold.
 * Warnings go to the console, so they name no line of the engine.
 */
export const STARTED = `
import sys, warnings, _rest_of_stdlib
warnings.formatwarning = lambda message, *where, **more: f"pyruntime: {message}\\n"
sys.path.insert(0, "${ENGINE}")
import pyruntime.browser, pyruntime.providers.wasm

def restored(zones):
    """Seed random numbers and set the time zone: they differ between pages."""
    if "random" in sys.modules:
        sys.modules["random"].seed()
    import time
    winter, summer, *names = zones.split()
    time.timezone, time.altzone, time.daylight = int(winter), int(summer), int(winter != summer)
    time.tzname = tuple(names)

def payload():
    """The last error; forget it, because its traceback would keep the model alive."""
    import json
    error = sys.last_exc
    sys.last_exc = sys.last_value = sys.last_traceback = None
    own = getattr(error, "payload", None)
    text = own() if own else {"type": type(error).__name__, "message": str(error), "node": "", "hint": ""}
    return json.dumps(text)
`;
/** This page's time zone: seconds and names, in winter and in summer. The image has the zone of the machine that made it. */
function zones() {
  const east = [0, 6].map((month) => -60 * new Date(new Date().getFullYear(), month).getTimezoneOffset());
  const digits = (/** @type {number} */ n) => String(Math.trunc(n)).padStart(2, '0');
  const name = (/** @type {number} */ s) => `UTC${s > 0 ? '+' : '-'}${digits(Math.abs(s) / 3600)}${digits((Math.abs(s) / 60) % 60)}`;
  const [winter, summer] = [Math.min(...east), Math.max(...east)];
  return [-winter, -summer, name(winter), name(summer)].join(' ');
}

/** Words by which code may await. Such code needs asyncio, which is in the second half of the library. */
const AWAITS = /\b(await|async\w*|run_sync)\b/;

/** Python errors that may come from a file that could not be fetched. */
const WANTS_FILE = /OSError|Import(Error)?|EOFError/;

const IDLE = 2000; // ms after which the first run has probably ended

/** One interpreter. */
export class Python {
  /** @param {PyodideAPI} pyodide */
  constructor(pyodide) {
    this.pyodide = pyodide;
    pyodide.setStderr({ batched: (line) => void (line.startsWith(PREFIX) ? warn(line.slice(PREFIX.length)) : console.warn(line)) });
    this.lastError = pyodide.globals.get('payload');
    this.engine = this.guard(() => pyodide.pyimport('pyruntime.browser'));
  }

  /**
   * Starts Python: restores a saved image of its memory, or boots normally if the image cannot be fetched or restored.
   * @param {Assets} assets @param {import('./prefetched_files.js').PrefetchedFiles | null} prefetched
   * @param {(done: number, steps: number) => void} progress
   * @param {(error: Error) => void} broken called when the interpreter can no longer be used
   * @returns {Promise<Python>}
   */
  static async boot(assets, prefetched, progress, broken) {
    progress(0, 3);
    const module = importModule(assets.asm);
    const image = Promise.resolve(prefetched?.image).then((bytes) => (bytes ? new Uint8Array(bytes) : downloadImage(assets.image)));
    const compiled = prefetched?.module ?? null;
    for (const file of [module, image]) file.catch(() => {}); // its error is handled where it is awaited
    const end = deferFinalizers();
    try {
      return await Python.restored(assets, { module, compiled, image }, progress, broken);
    } catch (error) {
      if (error instanceof SessionFailed) throw error; // another file failed
      warn(`Python starts without the image of its memory, which takes longer: ${error}`);
      return await Python.started(assets, { module, compiled }, progress, broken);
    } finally {
      end();
    }
  }

  /**
   * @param {Assets} assets @param {Parts & { image: Promise<Uint8Array<ArrayBuffer>> }} parts
   * @param {(done: number, steps: number) => void} progress @param {(error: Error) => void} broken
   */
  static async restored(assets, { module, compiled, image }, progress, broken) {
    await platform.prefetch(assets.rest, assets.stdlibRest, assets.stdlib, assets.engine);
    const state = new Uint8Array(STATE);
    let sums = { stdlib: 0, engine: 0 };
    const pyodide = await loaded(assets, Promise.resolve(new Uint8Array()), compiled, broken, {
      createPyodideModule: async (/** @type {unknown} */ settings) => {
        const made = await (await module).default(settings); // downloads the .wasm, too
        const read = readImage(await image);
        sums = read.sums;
        state.set(restore(made, read));
        return made;
      },
      _loadSnapshot: Promise.resolve(state),
      env: { ...ENV },
    });
    mark('Python started');
    addLazyFile(pyodide.FS, LIBRARY, assets.stdlib, sums.stdlib);
    addLazyFile(pyodide.FS, ENGINE, assets.engine, sums.engine);
    pyodide.globals.get('restored')(zones());
    return Python.ready(pyodide, assets, progress);
  }

  /**
   * @param {Assets} assets @param {Parts} parts
   * @param {(done: number, steps: number) => void} progress @param {(error: Error) => void} broken
   */
  static async started(assets, { module, compiled }, progress, broken) {
    await platform.prefetch(assets.rest, assets.stdlibRest);
    const engine = download(assets.engine);
    engine.catch(() => {});
    const pyodide = await loaded(assets, download(assets.stdlib), compiled, broken, {
      createPyodideModule: async (/** @type {unknown} */ settings) => (await module).default(settings),
    });
    mark('Python started');
    progress(1, 3);
    pyodide.FS.writeFile(ENGINE, await engine);
    pyodide.runPython(STARTED);
    return Python.ready(pyodide, assets, progress);
  }

  /** @param {PyodideAPI} pyodide @param {Assets} assets @param {(done: number, steps: number) => void} progress */
  static ready(pyodide, assets, progress) {
    mark('engine imported');
    progress(2, 3);
    pyodide.registerJsModule('pyruntime_host', { rest_of_stdlib: () => platform.readNow(assets.stdlibRest) });
    const python = new Python(pyodide);
    progress(3, 3);
    return python;
  }

  /**
   * Reads a model. @param {ReadFile} read @param {number} size @param {object} options @param {Stop | null} stop
   * @returns {PythonModel}
   */
  open(read, size, options, stop) {
    setTimeout(() => this.engine.collect(), IDLE);
    return new PythonModel(this, this.stoppable(stop, () => this.engine.create(read, size, JSON.stringify(options))));
  }

  /**
   * Paths of external data that the caller did not list.
   * @param {ReadFile} read @param {number} size @param {Record<string, number>} given sizes by path @returns {string[]}
   */
  missing(read, size, given) {
    return JSON.parse(this.engine.missing(read, size, JSON.stringify(given)));
  }

  /** Runs the page's code and returns its last value, awaited, as plain data. @param {string} code @param {unknown} args */
  async exec(code, args) {
    const globals = this.pyodide.toPy({ args });
    try {
      const value = await (AWAITS.test(code) ? this.pyodide.runPythonAsync(code, { globals }) : this.pyodide.runPython(code, { globals }));
      return plain(value);
    } catch (error) {
      throw this.translate(error);
    } finally {
      globals.destroy();
    }
  }

  /** @returns {string[]} names of the providers that the page's code has registered */
  providers() {
    return this.guard(() => JSON.parse(this.engine.providers()));
  }

  /** @returns {number} bytes of Python's own heap */
  heap() {
    return /** @type {PyodideAPI & { _module: { HEAPU8: Uint8Array } }} */ (this.pyodide)._module.HEAPU8.length;
  }

  /**
   * Calls Python so that `stop` interrupts it, if memory is shared.
   * @template T @param {Stop | null} stop @param {() => T} action @returns {T}
   */
  stoppable(stop, action) {
    if (!stop?.interrupt) return this.guard(action);
    this.pyodide.setInterruptBuffer(stop.interrupt);
    try {
      return this.guard(action);
    } finally {
      this.pyodide.setInterruptBuffer(/** @type {any} */ (undefined));
    }
  }

  /** @template T @param {() => T} action @returns {T} */
  guard(action) {
    takeReadError(); // drops the error of an earlier call, which has handled it
    try {
      return action();
    } catch (error) {
      throw this.translate(error);
    }
  }

  /** The error for a Python exception. @param {unknown} error */
  translate(error) {
    if (!(error instanceof this.pyodide.ffi.PythonError)) return error;
    const payload = JSON.parse(this.lastError());
    if (payload.type === 'KeyboardInterrupt') return new Terminated('it was stopped');
    const lost = takeReadError();
    const mapped = lost && WANTS_FILE.test(payload.type + payload.message) ? lost : fromPayload(payload);
    mapped.cause = error;
    return mapped;
  }
}

/** Pyodide's index of packages is empty: the engine loads none. */
export const NO_PACKAGES = {
  info: { abi_version: '2026_0', arch: 'wasm32', platform: 'emscripten_5_0_3', python: '3.14.2', version: '0' },
  packages: {},
};

/**
 * @param {Assets} assets @param {Promise<Uint8Array<ArrayBuffer>>} library @param {Parts['compiled']} compiled
 * @param {(error: Error) => void} broken @param {object} more settings
 * @returns {Promise<PyodideAPI>}
 */
const loaded = (assets, library, compiled, broken, more) => watchDownloads(assets, { library, compiled }, broken, () => loadPyodide(/** @type {Parameters<typeof loadPyodide>[0]} */ ({
  // Pyodide fetches `${indexURL}pyodide.asm.wasm`: after a "#" that name has no effect, so the file may have any name.
  indexURL: `${assets.wasm}#/`,
  packageBaseUrl: '/', // without it Pyodide would name a CDN
  stdLibURL: assets.stdlib,
  lockFileContents: JSON.stringify(NO_PACKAGES),
  stdin: () => '',
  ...more,
})));

/** A value of Python as data that a message can have. Errors: InvalidInput @param {unknown} value @returns {unknown} */
function plain(value) {
  const proxy = /** @type {PyProxy | null | undefined} */ (value);
  try {
    return structuredClone(proxy?.toJs ? proxy.toJs({ dict_converter: Object.fromEntries, create_pyproxies: false }) : value);
  } catch {
    const hint = 'end with None, a number, text, bytes, list or dict';
    throw new InvalidInput(`${proxy?.type ?? 'it'} cannot leave Python`, { hint });
  } finally {
    proxy?.destroy?.();
  }
}

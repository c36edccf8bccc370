// The options that a program written for onnxruntime-web may pass. Each has an effect, is an error, or gives one warning.
// scripts/compatibility.mjs writes their rows in docs/compatibility.md.

import { env } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';
import { log, logging, SEVERITIES, warnOnce } from '../../common/log.js';
import { adapterOptions, isDevice } from './adapter.js';
import * as engine from './engine_options.js';
import { anything, callable, check, count, flag, flatten, isOn, isRecord, list, noEffect, oneOf, record, refusedIfOn, text } from './option_kinds.js';

/** @typedef {import('onnxruntime-common').InferenceSession.SessionOptions} SessionOptions */
/** @typedef {import('onnxruntime-common').InferenceSession.RunOptions} RunOptions */
/** @import { LogOptions } from '../../common/log.js' */
/** @import { Option, Table } from './option_kinds.js' */
/** @typedef {{ name: string, device?: GPUDevice, allowSoftware?: boolean }} ProviderOptions */

logging.least = () => (env.debug ? 0 : SEVERITIES.indexOf(env.logLevel ?? 'warning'));

const PLANNED = "each session's memory is planned by the compiler; session.trim() gives back what larger runs took";
const IN_ORDER = 'kernels run one after the other, each on all threads';
const ONE_KIND = 'verbose messages have no levels';

/** @param {unknown} value */
const isOff = (value) => !value;
const severity = count(4);
const cacheMode = noEffect(oneOf('disabled', 'lazyRelease', 'simple', 'bucket'), 'weights and results stay in the buffers of the memory plan');

/** @type {Option} */
const providers = {
  wants: 'an array of names, or of objects that have a name',
  takes: (value) => Array.isArray(value) && value.every((item) => typeof (item?.name ?? item) === 'string'),
};

/** @type {Table} */
export const SESSION = {
  ...engine.PROGRAM,
  ...engine.LIMITS,
  ...engine.SESSION,
  executionProviders: providers,
  interOpNumThreads: noEffect(count(), IN_ORDER, (value) => Number(value) > 1),
  enableCpuMemArena: noEffect(flag, PLANNED, isOff),
  enableMemPattern: noEffect(flag, PLANNED, isOff),
  executionMode: noEffect(oneOf('sequential', 'parallel'), IN_ORDER, (value) => value === 'parallel'),
  optimizedModelFilePath: refusedIfOn('a page cannot write files; `pyruntime export` writes Programs'),
  enableProfiling: flag,
  profileFilePrefix: noEffect(text, 'endProfiling() prints and returns the trace; a page cannot write files'),
  logId: text,
  logSeverityLevel: severity,
  logVerbosityLevel: noEffect(count(4), ONE_KIND, isOn),
  enableGraphCapture: flag,
  extra: record,
  externalData: list,
  cache: { wants: 'true, false or a version of the model, as a text', takes: (value) => flag.takes(value) || text.takes(value) && value !== '' },
  fetch: callable,
  worker: text,
  onProgress: callable,
  signal: anything, // Cancellation checks it
};

/** @type {Table} */
export const RUN = {
  logSeverityLevel: severity,
  logVerbosityLevel: noEffect(count(), ONE_KIND, isOn),
  terminate: flag,
  tag: text,
  extra: record,
  signal: anything,
};

const SHRINK = 'memory.enable_memory_arena_shrinkage';

/** Options of providers that run in pages. @type {Record<string, Table>} */
export const PROVIDERS = {
  cpu: { name: text, useArena: noEffect(flag, PLANNED, isOff) },
  wasm: { name: text },
  auto: { name: text, allowSoftware: flag },
  webgpu: {
    name: text,
    preferredLayout: noEffect(oneOf('NCHW', 'NHWC'), 'the compiler chooses it'),
    forceCpuNodeNames: noEffect(anything, 'nodes run on the GPU where it pays; explain() tells which'),
    validationMode: noEffect(oneOf('disabled', 'wgpuOnly', 'basic', 'full'), 'the browser validates all commands'),
    enableRobustness: noEffect(flag, 'accesses are always within bounds'),
    storageBufferCacheMode: cacheMode,
    uniformBufferCacheMode: cacheMode,
    queryResolveBufferCacheMode: cacheMode,
    defaultBufferCacheMode: cacheMode,
    device: { wants: 'a GPUDevice', takes: isDevice },
    allowSoftware: flag,
  },
};

/** @param {unknown} value of env.webgpu.profiling */
const isProfiling = (value) => isRecord(value) && (value.mode === undefined || PROFILING.takes(value.mode))
  && (value.ondata === undefined || callable.takes(value.ondata));
const PROFILING = oneOf('off', 'default');

/** Flags in env. @type {Record<string, Table>} */
export const ENV = {
  wasm: {
    numThreads: noEffect(anything, `it is not ${count().wants}`, (value) => !count().takes(value)),
    simd: noEffect(anything, 'code without SIMD is not written', (value) => value !== true && value !== 'fixed' && value !== 'relaxed'),
    trace: flag,
    initTimeout: noEffect(anything, 'give create() a signal: AbortSignal.timeout(…)', isOn),
    wasmPaths: anything, // engine/assets.js
    wasmBinary: noEffect(anything, "it is onnxruntime's; the engine fetches its own files"),
    proxy: anything,
  },
  webgl: Object.fromEntries(['contextId', 'context', 'matmulMaxBatchSize', 'textureCacheMode', 'pack', 'async']
    .map((name) => [name, noEffect(anything, 'there is no WebGL provider')])),
  webgpu: {
    powerPreference: oneOf('low-power', 'high-performance'),
    forceFallbackAdapter: flag,
    profilingMode: PROFILING,
    profiling: { wants: "{ mode: 'off' or 'default', ondata: a function }", takes: isProfiling },
    adapter: anything, // gpu/page_gpu.js
    device: anything,
    validateInputContent: noEffect(anything, 'indices are always checked', (value) => value === false),
  },
};

/**
 * Checks the providers of a session. named: without duplicates; names: with those that "auto" stands for; inPage: of these, those that
 * decide whether the page runs the session, because providers that the page has added are in the worker.
 * @param {readonly (string | ProviderOptions)[]} executionProviders @param {LogOptions} [logOptions]
 */
function chosen(executionProviders, logOptions) {
  /** Of providers that the page has added. @type {Record<string, object> | undefined} */
  let providerOptions;
  const given = executionProviders.map((item) => {
    if (typeof item === 'string') return item;
    const { name, ...more } = item;
    if (PROVIDERS[name]) check(PROVIDERS[name], item, `option of the provider "${name}"`, logOptions);
    else (providerOptions ??= {})[name] = more;
    return name;
  });
  const named = [...new Set(given.map((name) => (name === 'cpu' ? 'wasm' : name)))];
  const names = [...new Set(named.flatMap((name) => (name === 'auto' ? ['webgpu', 'wasm'] : [name])))];
  const inPage = names.every((name) => PROVIDERS[name]) ? names : names.filter((name) => name !== 'webgpu');
  if (inPage !== names && deviceOf(executionProviders)) throw new InvalidInput('the provider "webgpu" cannot have a device beside providers of the page');
  return { named, names, inPage, providerOptions };
}

/**
 * Checks the options of a session. Those that are null count as absent.
 * @param {SessionOptions} input
 */
export function sessionOptions(input) {
  const options = /** @type {SessionOptions} */ (Object.fromEntries(Object.entries(input).map(([name, value]) => [name, value ?? undefined])));
  const logOptions = severity.takes(options.logSeverityLevel) || options.logId ? { least: options.logSeverityLevel, id: options.logId } : undefined;
  check(SESSION, options, 'session option', logOptions);
  const executionProviders = /** @type {readonly (string | ProviderOptions)[]} */ (options.executionProviders ?? []);
  const { named, names, inPage, providerOptions } = chosen(executionProviders, logOptions);
  checkEnv(logOptions);
  const extra = flatten(options.extra ?? {});
  check(engine.SESSION_ENTRIES, extra, 'session entry', logOptions);
  return {
    options,
    webgpu: hasGpu(inPage),
    device: deviceOf(executionProviders),
    preferred: outputLocation(options, inPage),
    /** For the worker. */
    params: {
      options: defined({
        executionProviders: names.length ? names : undefined,
        providerOptions,
        ...pick(options, engine.PROGRAM),
        uncached: extra['session.disable_program_cache'] === '1' || undefined,
        fixedSimd: env.wasm.simd === 'fixed' || undefined,
      }),
      named: named.length ? named : undefined,
      isAuto: named.includes('auto') && !deviceOf(executionProviders),
      allowsSoftware: Boolean(env.webgpu.forceFallbackAdapter) || executionProviders.some((item) => (
        typeof item === 'object' && ['webgpu', 'auto'].includes(item.name) && item.allowSoftware)),
      limits: /** @type {import('../../common/protocol.js').Limits} */ ({ gpuTimeout: engine.GPU_TIMEOUT, ...pick(options, engine.LIMITS) }),
      fallback: options.fallback ?? true,
      refusedForPrograms: engine.REFUSED_FOR_PROGRAMS.filter((name) => pick(options, engine.PROGRAM)[name]),
      logOptions,
      env: workerEnv(options.preset),
    },
  };
}

/** The device of the options of "webgpu". @param {readonly (string | ProviderOptions)[]} providers @returns {GPUDevice | undefined} */
const deviceOf = (providers) => providers.filter((item) => typeof item === 'object').find(({ name }) => name === 'webgpu')?.device;

/** Whether the GPU comes before WebAssembly. @param {string[]} names of providers */
const hasGpu = (names) => names.slice(0, names.indexOf('wasm') >>> 0).includes('webgpu');

/** Checks the providers before onnxruntime-common looks them up. @param {unknown[]} args of create, without the model */
export function checkProviders(args) {
  const options = /** @type {SessionOptions | undefined} */ (args.find(record.takes));
  check({ executionProviders: providers }, { executionProviders: options?.executionProviders }, 'session option');
}

/**
 * Returns the location of outputs; a captured graph leaves them on the GPU.
 * @param {SessionOptions} options @param {string[]} names of providers
 * @returns {SessionOptions['preferredOutputLocation']}
 */
function outputLocation({ preferredOutputLocation, enableGraphCapture }, names) {
  const preferred = preferredOutputLocation ?? (enableGraphCapture ? 'gpu-buffer' : undefined);
  const wanted = typeof preferred === 'string' ? [preferred] : Object.values(preferred ?? {});
  if (enableGraphCapture && wanted.includes('cpu')) throw new InvalidInput("preferredOutputLocation cannot be 'cpu' with enableGraphCapture", { hint: "'gpu-buffer'" });
  if (wanted.includes('gpu-buffer') && !hasGpu(names)) {
    const asked = preferredOutputLocation ? "preferredOutputLocation cannot be 'gpu-buffer'" : 'enableGraphCapture cannot be true';
    throw new InvalidInput(`${asked}: the session has no GPU`, { hint: "executionProviders: ['webgpu', 'wasm']" });
  }
  return preferred;
}

/** Checks the options of a run. @param {unknown} input @param {LogOptions} [logOptions] of the session */
export function runOptions(input, logOptions) {
  if (input === undefined || input === null) return null;
  if (!isRecord(input) || typeof input.dims === 'object') {
    throw new InvalidInput('run options must be an object', { hint: '{ signal } or { terminate }' });
  }
  const options = /** @type {RunOptions & { signal?: AbortSignal }} */ (input);
  if (input.adapters !== undefined && input.adapters !== null) { // a session with adapters takes them before
    throw new InvalidInput('the session has no adapters', { hint: 'create it with the option adapters: { name: file }' });
  }
  const name = [logOptions?.id, options.tag].filter(Boolean).join(' ');
  const ofRun = { least: severity.takes(options.logSeverityLevel) ? options.logSeverityLevel : logOptions?.least, id: typeof options.tag === 'string' ? name : logOptions?.id };
  check(RUN, options, 'run option', ofRun);
  const extra = flatten(options.extra ?? {});
  check(engine.RUN_ENTRIES, extra, 'run entry', ofRun);
  return { options, logOptions: ofRun, shrinks: Boolean(extra[SHRINK]) };
}

/** Checks the flags in env. @param {LogOptions} [logOptions] */
function checkEnv(logOptions) {
  for (const [name, table] of Object.entries(ENV)) {
    const own = Object.getOwnPropertyDescriptors(env[name] ?? {});
    const values = Object.fromEntries(Object.entries(own).map(([key, found]) => [key, found.value]));
    check(table, values, `flag env.${name}`, logOptions);
  }
}

/** Returns the settings in env for the worker. @param {string} [preset] of the session */
export function workerEnv(preset) {
  return { least: logging.least(), adapter: adapterOptions(preset) };
}

/**
 * Warns of names that no output has.
 * @param {SessionOptions['preferredOutputLocation']} preferred @param {string[]} outputs @param {LogOptions} [logOptions]
 */
export function checkOutputNames(preferred, outputs, logOptions) {
  if (typeof preferred !== 'object') return;
  for (const name of Object.keys(preferred)) {
    if (!outputs.includes(name)) warnOnce(`preferredOutputLocation names "${name}", which is no output`, logOptions);
  }
}

/** @param {import('../../common/protocol.js').CreateResult} created @param {LogOptions} [logOptions] */
export function logCreated({ timings: { download, compile, init }, threads }, logOptions) {
  log('info', () => `a session on ${threads} thread${threads > 1 ? 's' : ''}: download ${ms(download)}, compile ${ms(compile)}, init ${ms(init)}`, logOptions);
}

/** @param {number} time in milliseconds */
export const ms = (time) => `${time.toFixed(1)} ms`;

/** Returns the options that a table lists. @param {object} options @param {Table} table @returns {Record<string, unknown>} */
const pick = (options, table) => defined(Object.fromEntries(Object.keys(table).map((name) => [name, /** @type {Record<string, unknown>} */ (options)[name]])));

/** Returns the options that are not undefined. @template {object} T @param {T} options @returns {T} */
const defined = (options) => /** @type {T} */ (Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)));

// Every option that a program written for onnxruntime-web passes, and what becomes of it: it acts, is refused, or is told
// of once. docs/compatibility.md has a row for each (scripts/compatibility.mjs).

import { env } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';
import { log, logging, SEVERITIES, warnOnce } from '../../common/log.js';
import { adapterOptions, isDevice } from './adapter.js';
import * as engine from './engine_options.js';
import { anything, callable, check, count, flag, flatten, idle, list, oneOf, record, text } from './option_kinds.js';

/** @typedef {import('onnxruntime-common').InferenceSession.SessionOptions} SessionOptions */
/** @typedef {import('onnxruntime-common').InferenceSession.RunOptions} RunOptions */
/** @typedef {import('./option_kinds.js').Option} Option */
/** @typedef {import('./option_kinds.js').Table} Table */

logging.least = () => (env.debug ? 0 : SEVERITIES.indexOf(env.logLevel ?? 'warning'));

const PLANNED = "each session's memory is planned by the compiler; session.trim() gives back what larger runs took";
const IN_ORDER = 'kernels run one after the other, each on all threads';
const CHOSEN = 'the compiler chooses it';
const KEPT_BUFFERS = 'weights and results stay in the buffers that the plan has for them';

/** An entry without effect where it is on. @param {Option} kind @param {string} why @returns {Option} */
const idleOn = (kind, why) => ({ ...kind, idle: (value) => Boolean(value) && value !== '0' && why });
/** @param {string} why @returns {Option} */
const refusedOn = (why) => ({ ...text, refused: (value) => value !== '' && value !== '0' && why });

const severity = count(4);
const cache = idle(oneOf('disabled', 'lazyRelease', 'simple', 'bucket'), KEPT_BUFFERS);

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
  interOpNumThreads: { ...count(), idle: (value) => value > 1 && IN_ORDER },
  enableCpuMemArena: { ...flag, idle: (value) => !value && PLANNED },
  enableMemPattern: { ...flag, idle: (value) => !value && PLANNED },
  executionMode: { ...oneOf('sequential', 'parallel'), idle: (value) => value === 'parallel' && IN_ORDER },
  optimizedModelFilePath: { ...text, refused: (value) => value && 'a page cannot write files, and an optimised model is no ONNX graph here; `pyruntime export` writes Programs' },
  enableProfiling: flag,
  profileFilePrefix: idle(text, 'endProfiling() prints and returns the trace; a page cannot write files'),
  logId: text,
  logSeverityLevel: severity,
  logVerbosityLevel: idleOn(count(4), 'verbose messages are of one kind'),
  enableGraphCapture: flag,
  extra: record,
  externalData: list,
  cache: { wants: 'true, false or a version of the model, as a text', takes: (value) => flag.takes(value) || text.takes(value) && value },
  onProgress: callable,
  signal: anything, // Cancellation refuses what is none
};

/** @type {Table} */
export const RUN = {
  logSeverityLevel: severity,
  logVerbosityLevel: idleOn(count(), 'verbose messages are of one kind'),
  terminate: flag,
  tag: text,
  extra: record,
  signal: anything,
};

/** Entries of a session's `extra`; others are told of. @type {Table} */
const SESSION_ENTRIES = {
  'session.disable_program_cache': text,
  'session.use_ort_model_bytes_directly': text, // onnxruntime-web itself writes it into what a program passed
  'session.disable_cpu_ep_fallback': refusedOn('WebAssembly takes what no other provider does'),
  'ep.context_enable': refusedOn('models are compiled into Programs; `pyruntime export` writes one'),
  'session.load_model_format': text, // a file's own first bytes tell which it is
};

const SHRINK = 'memory.enable_memory_arena_shrinkage';
/** @type {Table} */
const RUN_ENTRIES = { [SHRINK]: text };

/** Of the web's providers; others are of other places. @type {Record<string, Table>} */
export const PROVIDERS = {
  cpu: { name: text, useArena: { ...flag, idle: (value) => !value && PLANNED } },
  wasm: { name: text },
  webgpu: {
    name: text,
    preferredLayout: idle(oneOf('NCHW', 'NHWC'), CHOSEN),
    forceCpuNodeNames: idle(anything, 'nodes run on the GPU where it pays; explain() tells which'),
    validationMode: idle(oneOf('disabled', 'wgpuOnly', 'basic', 'full'), 'the browser validates all commands'),
    enableRobustness: idle(flag, 'accesses are always within bounds'),
    storageBufferCacheMode: cache,
    uniformBufferCacheMode: cache,
    queryResolveBufferCacheMode: cache,
    defaultBufferCacheMode: cache,
    device: { wants: 'a GPUDevice', takes: isDevice },
  },
};

/** @param {any} value of env.webgpu.profiling */
const isProfile = (value) => record.takes(value) && [undefined, 'off', 'default'].includes(value.mode) && (value.ondata === undefined || callable.takes(value.ondata));

/** Flags in env that are no options of this package. @type {Record<string, Table>} */
export const ENV = {
  wasm: {
    numThreads: { ...anything, idle: (value) => !count().takes(value) && `it is not ${count().wants}` },
    simd: { ...anything, idle: (value) => ![true, 'fixed', 'relaxed'].includes(value) && 'code without SIMD is not written' },
    trace: flag,
    initTimeout: idleOn(anything, 'give create() a signal: AbortSignal.timeout(…)'),
    wasmPaths: anything, // engine/assets.js
    wasmBinary: idle(anything, "it is onnxruntime's; the engine fetches its own files"),
    proxy: anything,
  },
  webgl: Object.fromEntries(['contextId', 'context', 'matmulMaxBatchSize', 'textureCacheMode', 'pack', 'async']
    .map((name) => [name, idle(anything, 'there is no WebGL provider')])),
  webgpu: {
    powerPreference: oneOf('low-power', 'high-performance'),
    forceFallbackAdapter: flag,
    profilingMode: oneOf('off', 'default'),
    profiling: { wants: "{ mode: 'off' or 'default', ondata: a function }", takes: isProfile },
    adapter: anything, // gpu/page_gpu.js
    device: anything,
    validateInputContent: { ...anything, idle: (value) => value === false && 'indices are always checked' },
  },
};

/**
 * Refuses session options that are wrong, and gives what they mean.
 * @param {SessionOptions & Record<string, any>} options
 */
export function sessionOptions(options) {
  const given = Object.fromEntries(Object.keys(options).map((name) => [name, options[name] ?? undefined]));
  const said = severity.takes(options.logSeverityLevel) || options.logId ? { least: options.logSeverityLevel, id: options.logId } : undefined;
  check(SESSION, given, 'session option', said);
  const names = (given.executionProviders ?? []).map((/** @type {any} */ item) => {
    if (typeof item !== 'string') check(PROVIDERS[item.name] ?? { name: text }, item, `option of the provider "${item.name}"`, said);
    return item.name ?? item;
  });
  checkEnv(said);
  const extra = flatten(given.extra ?? {});
  check(SESSION_ENTRIES, extra, 'session entry', said);
  return {
    given,
    webgpu: names.slice(0, names.indexOf('wasm') >>> 0).includes('webgpu'),
    device: deviceOf(given.executionProviders ?? []),
    preferred: outputLocation(given, names),
    params: {
      options: defined({
        executionProviders: names.length ? names : undefined,
        ...pick(given, engine.PROGRAM),
        uncached: extra['session.disable_program_cache'] === '1' || undefined,
        fixedSimd: env.wasm.simd === 'fixed' || undefined,
      }),
      limits: pick(given, engine.LIMITS),
      refusedForPrograms: engine.REFUSED_FOR_PROGRAMS.filter((name) => given[name]),
      said,
      env: workerEnv(given.preset),
    },
  };
}

/** @param {any[]} asked @returns {GPUDevice | undefined} that a provider is to use */
const deviceOf = (asked) => asked.find((item) => item.name === 'webgpu')?.device;

/** Before onnxruntime-common looks for them. @param {unknown[]} args of create, without the model */
export function checkProviders(args) {
  const options = /** @type {SessionOptions | undefined} */ (args.find(record.takes));
  check({ executionProviders: providers }, { executionProviders: options?.executionProviders }, 'session option');
}

/** Where outputs are left; captured graphs leave them on the GPU. @param {SessionOptions} options @param {string[]} names of providers @returns {SessionOptions['preferredOutputLocation']} */
function outputLocation({ preferredOutputLocation, enableGraphCapture }, names) {
  const preferred = preferredOutputLocation ?? (enableGraphCapture ? 'gpu-buffer' : undefined);
  const wanted = typeof preferred === 'string' ? [preferred] : Object.values(preferred ?? {});
  if (enableGraphCapture && wanted.includes('cpu')) throw new InvalidInput("preferredOutputLocation cannot be 'cpu' with enableGraphCapture", { hint: "'gpu-buffer'" });
  const onGpu = names.slice(0, names.indexOf('wasm') >>> 0).includes('webgpu');
  if (wanted.includes('gpu-buffer') && !onGpu) {
    const asked = preferredOutputLocation ? "preferredOutputLocation cannot be 'gpu-buffer'" : 'enableGraphCapture cannot be true';
    throw new InvalidInput(`${asked}: the session has no GPU`, { hint: "executionProviders: ['webgpu', 'wasm']" });
  }
  return preferred;
}

/** Refuses run options that are wrong, and gives what they mean. @param {unknown} options @param {import('../../common/log.js').Said} [said] of the session */
export function runOptions(options, said) {
  if (options === undefined) return null;
  if (!record.takes(options) || typeof /** @type {any} */ (options).dims === 'object') {
    throw new InvalidInput('run options must be an object', { hint: '{ signal } or { terminate }' });
  }
  const given = /** @type {RunOptions & { signal?: AbortSignal }} */ (options);
  const name = [said?.id, given.tag].filter(Boolean).join(' ');
  const ofRun = { least: severity.takes(given.logSeverityLevel) ? given.logSeverityLevel : said?.least, id: typeof given.tag === 'string' ? name : said?.id };
  check(RUN, given, 'run option', ofRun);
  const extra = flatten(given.extra ?? {});
  check(RUN_ENTRIES, extra, 'run entry', ofRun);
  return { given, said: ofRun, shrinks: Boolean(extra[SHRINK]) };
}

/** @param {import('../../common/log.js').Said} [said] */
function checkEnv(said) {
  for (const [name, table] of Object.entries(ENV)) {
    const own = Object.getOwnPropertyDescriptors(/** @type {any} */ (env)[name] ?? {});
    const values = Object.fromEntries(Object.entries(own).map(([key, found]) => [key, found.value]));
    check(table, values, `flag env.${name}`, said);
  }
}

/** What the worker is told of env. @param {string} [preset] of the session */
export function workerEnv(preset) {
  return { least: logging.least(), adapter: adapterOptions(preset) };
}

/** Names of outputs that are none. @param {SessionOptions['preferredOutputLocation']} preferred @param {string[]} outputs @param {import('../../common/log.js').Said} [said] */
export function checkOutputNames(preferred, outputs, said) {
  if (typeof preferred !== 'object') return;
  for (const name of Object.keys(preferred)) {
    if (!outputs.includes(name)) warnOnce(`preferredOutputLocation names "${name}", which is no output`, said);
  }
}

/** What was made, for who wants to know. @param {import('../../common/protocol.js').CreateResult} created @param {import('../../common/log.js').Said} [said] */
export function logCreated({ timings: { download, compile, init }, threads }, said) {
  log('info', () => `a session on ${threads} thread${threads > 1 ? 's' : ''}: download ${ms(download)}, compile ${ms(compile)}, init ${ms(init)}`, said);
}

/** @param {number} time */
export const ms = (time) => `${time.toFixed(1)} ms`;

/** The options that a table has. @param {Record<string, any>} options @param {Table} table */
const pick = (options, table) => defined(Object.fromEntries(Object.keys(table).map((name) => [name, options[name]])));

/** Without entries that are undefined. @template {Record<string, any>} T @param {T} options @returns {T} */
const defined = (options) => /** @type {T} */ (Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)));

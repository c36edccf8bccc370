// Options of sessions and runs: which act, which are rejected, and which give one warning.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { env } from 'onnxruntime-common';
import { InvalidInput } from '../../web/common/errors.js';
import { flatten } from '../../web/page/options/option_kinds.js';
import { runOptions, sessionOptions } from '../../web/page/options/options.js';

const { warn } = console;
/** @type {string[]} */
let warnings = [];
beforeEach(() => { warnings = []; console.warn = (text) => warnings.push(text); });
afterEach(() => { console.warn = warn; });

const QUIET = {
  executionProviders: [{ name: 'webgpu' }, { name: 'cpu', useArena: true }, 'wasm'], intraOpNumThreads: 2, interOpNumThreads: 1,
  freeDimensionOverrides: { batch: 1 }, graphOptimizationLevel: 'layout', enableCpuMemArena: true, enableMemPattern: true,
  executionMode: 'sequential', optimizedModelFilePath: '', enableProfiling: true, logId: 'mine', logSeverityLevel: 2, logVerbosityLevel: 0,
  preferredOutputLocation: { y: 'gpu-buffer' }, enableGraphCapture: false, extra: { session: { use_ort_model_bytes_directly: '1' } },
  externalData: [], disabledPasses: [], preset: 'power', memoryLimit: 1, compileTimeLimit: undefined, codeSizeLimit: null,
};

test('options that act give no warning', () => {
  const { params: { options, limits, logOptions }, preferred } = sessionOptions(QUIET);
  assert.deepEqual(options, { executionProviders: ['webgpu', 'wasm'], graphOptimizationLevel: 'layout', disabledPasses: [], freeDimensionOverrides: { batch: 1 } });
  assert.deepEqual([limits, logOptions, preferred], [{ memoryLimit: 1, gpuTimeout: 60 }, { least: 2, id: 'mine' }, { y: 'gpu-buffer' }]);
  assert.deepEqual(warnings, []);
});

const webgpu = (options) => ({ executionProviders: [{ name: 'webgpu', ...options }] });

for (const [options, message] of [
  [{ executionProviders: 'wasm' }, "executionProviders cannot be 'wasm' (an array of names, or of objects that have a name)"],
  [{ executionProviders: [{}] }, 'executionProviders cannot be an array of 1'],
  [{ intraOpNumThreads: -1 }, 'intraOpNumThreads cannot be -1 (an integer from 0 to 1024)'],
  [{ interOpNumThreads: 1.5 }, 'interOpNumThreads cannot be 1.5'],
  [{ freeDimensionOverrides: { n: 'two' } }, 'freeDimensionOverrides cannot be an object Object (integers from 0 on'],
  [{ graphOptimizationLevel: 'most' }, "graphOptimizationLevel cannot be 'most' ('disabled' or 'basic'"],
  [{ enableCpuMemArena: 1 }, 'enableCpuMemArena cannot be 1 (true or false)'],
  [{ enableMemPattern: 'no' }, "enableMemPattern cannot be 'no'"],
  [{ executionMode: 'fast' }, "executionMode cannot be 'fast'"],
  [{ optimizedModelFilePath: 'o.onnx' }, 'optimizedModelFilePath: a page cannot write files'],
  [{ enableProfiling: 'yes' }, "enableProfiling cannot be 'yes'"],
  [{ logSeverityLevel: 5 }, 'logSeverityLevel cannot be 5 (an integer from 0 to 4)'],
  [{ logVerbosityLevel: -1 }, 'logVerbosityLevel cannot be -1'],
  [{ preferredOutputLocation: 'ml-tensor' }, "preferredOutputLocation cannot be 'ml-tensor' ('cpu' or 'gpu-buffer', for all outputs or by name)"],
  [{ preferredOutputLocation: { y: 'texture' } }, 'preferredOutputLocation cannot be'],
  [{ preferredOutputLocation: 'gpu-buffer' }, "preferredOutputLocation cannot be 'gpu-buffer': the session has no GPU"],
  [{ executionProviders: ['wasm', 'webgpu'], preferredOutputLocation: { y: 'gpu-buffer' } }, 'the session has no GPU'],
  [{ enableGraphCapture: true }, 'enableGraphCapture cannot be true: the session has no GPU'],
  [{ ...webgpu(), enableGraphCapture: true, preferredOutputLocation: 'cpu' }, "cannot be 'cpu' with enableGraphCapture"],
  [{ extra: [] }, 'extra cannot be an array of 0'],
  [{ extra: { ep: { context_enable: '1' } } }, 'ep.context_enable: models are compiled'],
  [{ extra: { 'session.disable_cpu_ep_fallback': true } }, 'WebAssembly runs the nodes that no other provider supports'],
  [{ preset: 'fast' }, "preset cannot be 'fast' ('latency' or 'throughput' or 'power')"],
  [{ preset: 'toString' }, "preset cannot be 'toString'"],
  [{ preset: ['power'] }, 'preset cannot be an array of 1'],
  [{ onProgress: {} }, 'onProgress cannot be an object Object (a function)'],
  [webgpu({ preferredLayout: 'CHWN' }), "preferredLayout cannot be 'CHWN'"],
  [webgpu({ storageBufferCacheMode: 'big' }), "storageBufferCacheMode cannot be 'big'"],
  [webgpu({ device: {} }), 'device cannot be an object Object (a GPUDevice)'],
]) {
  test(`refused: ${message}`, () => assert.throws(() => sessionOptions(options), (error) => error instanceof InvalidInput && error.message.includes(message)));
}

for (const [options, message] of [
  [{ interOpNumThreads: 2 }, '"interOpNumThreads" has no effect: kernels run one after the other'],
  [{ enableCpuMemArena: false }, '"enableCpuMemArena" has no effect'],
  [{ enableMemPattern: false }, '"enableMemPattern" has no effect'],
  [{ executionMode: 'parallel' }, '"executionMode" has no effect'],
  [{ profileFilePrefix: 'p' }, '"profileFilePrefix" has no effect'],
  [{ logVerbosityLevel: 2 }, '"logVerbosityLevel" has no effect'],
  [{ optimisation: 9 }, 'there is no session option "optimisation"'],
  [{ extra: { session: { set_denormal_as_zero: '1' } } }, 'there is no session entry "session.set_denormal_as_zero"'],
  [webgpu({ preferredLayout: 'NHWC' }), 'option of the provider "webgpu" "preferredLayout" has no effect'],
  [webgpu({ forceCpuNodeNames: ['a'] }), '"forceCpuNodeNames" has no effect'],
]) {
  test(`one warning: ${message}`, () => {
    sessionOptions(options);
    sessionOptions(options);
    assert.equal(warnings.length, 1);
    assert.ok(warnings[0].startsWith('pyruntime: ') && warnings[0].includes(message), warnings[0]);
  });
}

test('a severity silences the warnings of its session', () => {
  sessionOptions({ unheard: 1, logSeverityLevel: 3 });
  assert.deepEqual(warnings, []);
  sessionOptions({ unheard: 1, logId: 'b' });
  assert.deepEqual(warnings, ['pyruntime b: there is no session option "unheard", it has no effect']);
});

test('env.logLevel silences', () => {
  env.logLevel = 'error';
  sessionOptions({ muted: 1 });
  env.logLevel = 'warning';
  assert.deepEqual(warnings, []);
});

test('captured graphs leave outputs on the GPU', () => {
  assert.equal(sessionOptions({ ...webgpu(), enableGraphCapture: true }).preferred, 'gpu-buffer');
});

for (const [room, name, value] of [
  ['wasm', 'initTimeout', 100], ['wasm', 'wasmBinary', new Uint8Array(1)], ['wasm', 'simd', false], ['wasm', 'numThreads', 'two'],
  ['webgl', 'pack', true], ['webgpu', 'validateInputContent', false],
]) {
  test(`one warning: env.${room}.${name}`, () => {
    env[room][name] = value;
    sessionOptions({});
    sessionOptions({});
    delete env[room][name];
    assert.equal(warnings.length, 1);
    assert.ok(warnings[0].includes(`"${name}" has no effect`), warnings[0]);
  });
}

test('a wrong flag in env is refused', () => {
  env.webgpu.powerPreference = 'most';
  assert.throws(() => sessionOptions({}), /powerPreference cannot be 'most'/);
  delete env.webgpu.powerPreference;
});

test('run options', () => {
  const options = { logSeverityLevel: 0, tag: 'first', terminate: false, extra: { memory: { enable_memory_arena_shrinkage: 'cpu:0' } } };
  assert.deepEqual(runOptions(options, { least: 3, id: 's' }), { options, logOptions: { least: 0, id: 's first' }, shrinks: true });
  assert.deepEqual([runOptions(undefined), runOptions(null)], [null, null]);
  runOptions({ logVerbosityLevel: 1, terminated: true, extra: { gpu_graph_id: '1' } });
  assert.deepEqual(warnings.map((text) => text.match(/"[\w.]+"/)?.[0]), ['"logVerbosityLevel"', '"terminated"', '"gpu_graph_id"']);
});

for (const [options, message] of [
  [7, 'run options must be an object'], [[], 'run options must be an object'],
  [{ terminate: 'now' }, "terminate cannot be 'now'"], [{ tag: 5 }, 'tag cannot be 5'], [{ logSeverityLevel: 'high' }, "logSeverityLevel cannot be 'high'"],
  [{ extra: 'x' }, "extra cannot be 'x'"],
]) {
  test(`refused run options: ${JSON.stringify(options)}`, () => assert.throws(() => runOptions(options), (error) => error instanceof InvalidInput && error.message.includes(message)));
}

test('entries of extra become texts by dotted names', () => {
  const deep = { a: { b: 1, c: { d: true } }, 'e.f': 'x' };
  assert.deepEqual(flatten(deep), { 'a.b': '1', 'a.c.d': '1', 'e.f': 'x' });
  assert.throws(() => flatten({ a: null }), /extra.a cannot be null/);
  deep.a.c.up = deep;
  assert.throws(() => flatten(deep), /contains itself/);
});

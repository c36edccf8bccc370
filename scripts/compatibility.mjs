// Writes the JavaScript part of docs/compatibility.md: each public member of onnxruntime-common's types, and what it is
// here. Those of onnxruntime-web are the same: its types export them all.
//
// node scripts/compatibility.mjs [--check]
//
// A remark on a member that is none is an error, and so is an option that web/page/options/options.js has no entry for.

import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript-5';
import { ENV, PROVIDERS, RUN, SESSION } from '../web/page/options/options.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const PAGE = join(ROOT, 'docs', 'compatibility.md');
const TYPES = join(ROOT, 'node_modules', 'onnxruntime-common', 'dist', 'esm', 'index.d.ts');
const [BEGIN, END] = ['<!-- JavaScript: scripts/compatibility.mjs -->\n', '\n<!-- end of JavaScript -->'];

const ELSEWHERE = 'refused: it is no provider of the web here; names that nobody has registered are left out with a warning, and with no other name refused';
const TOLD = 'no effect, with a warning: ';
const REFUSED_TENSOR = 'differs: such tensors are refused as feeds and fetches';
const PLANNED = `${TOLD}false, as memory is planned by the compiler`;
const REMARKS = {
  'Env.debug': 'differs: true tells all messages, as `logLevel` "verbose" does',
  'Env.logLevel': 'differs: it may change at any time',
  'Env.versions': "differs: `web` is this package's version",
  'Env.webgl': `${TOLD}there is no WebGL provider`,
  'Env.WasmFilePaths': "differs: `mjs` of worker.mjs, `wasm` of pyodide.asm.wasm; others' are passed over with a warning",
  'Env.WasmPathPrefix': "differs: a folder without this package's files is passed over with a warning",
  'Env.WebAssemblyFlags.initTimeout': `${TOLD}give \`create\` a signal`,
  'Env.WebAssemblyFlags.numThreads': 'differs: may change before each session; without it as many as there are processors, four at most',
  'Env.WebAssemblyFlags.proxy': 'differs: the engine is always in a worker; true keeps short runs there, too',
  'Env.WebAssemblyFlags.simd': 'differs: relaxed SIMD is used where the browser has it, unless it is "fixed"; code without SIMD is not written',
  'Env.WebAssemblyFlags.wasmBinary': `${TOLD}it is onnxruntime's`,
  'Env.WebAssemblyFlags.trace': 'differs: `create` and `run` are traced',
  'Env.WebAssemblyFlags.wasmPaths': "differs: of this package's files; others' are passed over with a warning",
  'Env.WebGpuProfilingDataV1': "differs: of our kernels: `kernelName` is the node, `programName` the kernel; times in nanoseconds since the run's first kernel",
  'Env.WebGpuProfilingDataV1TensorMetadata': "differs: one for all buffers of a kernel, in bytes",
  'Env.trace': 'differs: `create` and `run` are traced',
  'Env.WebGLFlags': `${TOLD}there is no WebGL provider`,
  'Env.WebGpuFlags.adapter': "differs: counts for sessions created after it is set, and again; reading gives the adapter after the first session on the GPU",
  'Env.WebGpuFlags.device': "differs: counts for sessions created after it is set, at any time; what it reads is of the page, and sessions move there once they meet its buffers",
  'Env.WebGpuFlags.powerPreference': 'differs: "high-performance" where nothing is said; counts before the first session on the GPU',
  'Env.WebGpuFlags.validateInputContent': 'no effect: indices are always checked',
  'InferenceSession.endProfiling': 'differs: prints the trace, for Chrome\'s viewer or Perfetto, and gives it as text; kernels of one run stand one after the other, each called on one thread',
  'InferenceSession.release': 'differs: a second one does nothing',
  'InferenceSession.run': 'differs: a feed may be an array of tensors (a sequence) or null (an absent optional); errors are [ours](api.md#errors)',
  'InferenceSession.startProfiling': 'differs: begins a trace; without effect in onnxruntime-web',
  'InferenceSession.RunOptions.extra': 'differs: `memory.enable_memory_arena_shrinkage` acts; others are told of',
  'InferenceSession.RunOptions.logVerbosityLevel': `${TOLD}verbose messages are of one kind`,
  'InferenceSession.RunOptions.tag': 'differs: names the run in messages',
  'InferenceSession.RunOptions.terminate': 'differs: may be set while the run goes on: `Terminated`',
  'InferenceSession.SessionOptions.enableCpuMemArena': PLANNED,
  'InferenceSession.SessionOptions.enableMemPattern': PLANNED,
  'InferenceSession.SessionOptions.enableGraphCapture': 'differs: outputs are left on the GPU; plans are kept for every session, feeds may lie anywhere',
  'InferenceSession.SessionOptions.enableProfiling': 'differs: the trace has kernels, those on the GPU in a row of their own, timed by `timestamp-query` where the adapter has it',
  'InferenceSession.SessionOptions.executionMode': `${TOLD}"parallel", as kernels run one after the other, each on all threads`,
  'InferenceSession.SessionOptions.executionProviders': 'differs: "webgpu", "wasm", "cpu" and [those that you bring](extending.md#providers); without any, "wasm"',
  'InferenceSession.SessionOptions.extra': 'differs: `session.disable_program_cache` acts; what asks for another engine is refused, others are told of',
  'InferenceSession.SessionOptions.graphOptimizationLevel': 'differs: what a level does is told in [api.md](api.md)',
  'InferenceSession.SessionOptions.interOpNumThreads': `${TOLD}more than one, as kernels run one after the other`,
  'InferenceSession.SessionOptions.logVerbosityLevel': `${TOLD}verbose messages are of one kind`,
  'InferenceSession.SessionOptions.optimizedModelFilePath': 'refused: an optimised model is no ONNX graph here; `pyruntime export` writes Programs',
  'InferenceSession.SessionOptions.preferredOutputLocation': 'differs: "cpu" and "gpu-buffer"; "gpu-buffer" is refused without the provider "webgpu", others always',
  'InferenceSession.SessionOptions.profileFilePrefix': `${TOLD}a page cannot write files`,
  'InferenceSession.CpuExecutionProviderOption.useArena': PLANNED,
  ...Object.fromEntries(['storageBuffer', 'uniformBuffer', 'queryResolveBuffer', 'defaultBuffer']
    .map((name) => [`InferenceSession.WebGpuExecutionProviderOption.${name}CacheMode`, `${TOLD}buffers are those of the plan`])),
  'InferenceSession.WebGpuExecutionProviderOption.enableRobustness': `${TOLD}accesses are always within bounds`,
  'InferenceSession.WebGpuExecutionProviderOption.forceCpuNodeNames': `${TOLD}nodes run on the GPU where it pays`,
  'InferenceSession.WebGpuExecutionProviderOption.preferredLayout': `${TOLD}the compiler chooses it`,
  'InferenceSession.WebGpuExecutionProviderOption.validationMode': `${TOLD}the browser validates all commands`,
  ...Object.fromEntries(['CoreMLExecutionProviderOption', 'CudaExecutionProviderOption', 'DmlExecutionProviderOption', 'NnapiExecutionProviderOption',
    'QnnExecutionProviderOption', 'TensorRtExecutionProviderOption', 'WebGLExecutionProviderOption', 'WebNNContextOptions', 'WebNNExecutionProviderName',
    'WebNNExecutionProviderOption', 'WebNNOptionsWebGpu', 'WebNNOptionsWithMLContext', 'WebNNOptionsWithoutMLContext', 'XnnpackExecutionProviderOption']
    .map((name) => [`InferenceSession.${name}`, ELSEWHERE])),
  ...Object.fromEntries(['coreml', 'cuda', 'dml', 'nnapi', 'qnn', 'tensorrt', 'webgl', 'webnn', 'xnnpack']
    .map((name) => [`InferenceSession.ExecutionProviderOptionMap.${name}`, ELSEWHERE])),
  'MLTensorConstructorParameters': REFUSED_TENSOR,
  ...Object.fromEntries(['TensorConstructor', 'TensorFactory'].flatMap((name) => [
    [`${name}.fromMLTensor`, REFUSED_TENSOR],
    [`${name}.fromTexture`, REFUSED_TENSOR],
  ])),
  'TextureConstructorParameters': REFUSED_TENSOR,
};

/** Options in the types, and the tables that must have an entry for each. */
const TABLES = {
  'InferenceSession.SessionOptions': SESSION,
  'InferenceSession.RunOptions': RUN,
  'InferenceSession.CpuExecutionProviderOption': PROVIDERS.cpu,
  'InferenceSession.WebAssemblyExecutionProviderOption': PROVIDERS.wasm,
  'InferenceSession.WebGpuExecutionProviderOption': PROVIDERS.webgpu,
  'Env.WebAssemblyFlags': ENV.wasm,
  'Env.WebGLFlags': ENV.webgl,
  'Env.WebGpuFlags': ENV.webgpu,
};

/** Names of all that the types export: of declarations, and of the members of interfaces in them. @returns {string[]} */
function members() {
  const program = ts.createProgram([TYPES], { module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, target: ts.ScriptTarget.ESNext, types: [] });
  const checker = program.getTypeChecker();
  /** @type {Set<string>} */
  const found = new Set();
  /** @param {import('typescript-5').Symbol} symbol @param {string} prefix */
  function visit(symbol, prefix) {
    const name = prefix + symbol.name;
    found.add(name);
    if (symbol.flags & ts.SymbolFlags.NamespaceModule) for (const inner of checker.getExportsOfModule(symbol)) visit(inner, `${name}.`);
    if (!(symbol.flags & ts.SymbolFlags.Interface)) return;
    for (const member of checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol))) found.add(`${name}.${member.name}`);
  }
  const entry = checker.getSymbolAtLocation(/** @type {any} */ (program.getSourceFile(TYPES)));
  for (const symbol of checker.getExportsOfModule(/** @type {any} */ (entry))) visit(symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol, '');
  return [...found].sort();
}

/** @param {string[]} names */
function missing(names) {
  const unknown = Object.keys(REMARKS).filter((name) => !names.includes(name)).map((name) => `${name} is no member`);
  const options = Object.entries(TABLES).flatMap(([owner, table]) => {
    const theirs = names.filter((name) => name.startsWith(`${owner}.`)).map((name) => name.slice(owner.length + 1));
    if (!theirs.length) return [`${owner} has no members`];
    return theirs.filter((name) => !Object.hasOwn(table, name)).map((name) => `${owner}.${name} has no entry in web/page/options/options.js`);
  });
  return [...unknown, ...options];
}

/** A remark on a type is one on its members. @param {string} name @returns {string} */
function remark(name) {
  const owner = ownerOf(name);
  return /** @type {Record<string, string>} */ (REMARKS)[name] ?? (isType(owner) ? remark(owner) : 'same');
}

/** @param {string} name */
const ownerOf = (name) => name.slice(0, Math.max(0, name.lastIndexOf('.')));
/** Env and InferenceSession are types and namespaces of others: their remarks, if any, would be on themselves. @param {string} name */
const isType = (name) => name !== '' && name !== 'Env' && name !== 'InferenceSession' && name !== 'Tensor';
/** A member that is what its type is has no row. @param {string} name */
const isListed = (name) => !isType(ownerOf(name)) || remark(name) !== remark(ownerOf(name));

const names = members();
const wrong = missing(names);
if (wrong.length) throw new Error(wrong.join('\n'));
const table = ['| | |', '|---|---|', ...names.filter(isListed).map((name) => `| \`${name}\` | ${remark(name)} |`)].join('\n');
const before = await readFile(PAGE, 'utf8');
const [head, rest] = before.split(BEGIN);
const after = head + BEGIN + table + END + rest.split(END)[1];
if (!process.argv.includes('--check')) await writeFile(PAGE, after);
else if (after !== before) throw new Error('docs/compatibility.md is stale: node scripts/compatibility.mjs');

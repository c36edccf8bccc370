// Writes the JavaScript part of docs/compatibility.md: each public member of onnxruntime-common's types, which
// onnxruntime-web also exports, and how this package differs.
//
// node scripts/compatibility.mjs [--check]
//
// Errors: a remark on a name that is not a member; an option without an entry in web/page/options/options.js.

import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript-5';
import { ENV, PROVIDERS, RUN, SESSION } from '../web/page/options/options.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const PAGE = join(ROOT, 'docs', 'compatibility.md');
const TYPES = join(ROOT, 'node_modules', 'onnxruntime-common', 'dist', 'esm', 'index.d.ts');
const [BEGIN, END] = ['<!-- JavaScript: scripts/compatibility.mjs -->\n', '\n<!-- end of JavaScript -->'];

const LEFT_OUT = 'a name that nobody registered is left out with a warning, and refused if it is the only one';
const ELSEWHERE = `refused: it is no provider of pages; ${LEFT_OUT}`;
const OF_PAGES = `refused: onnxruntime-web has it in pages, [this engine declines it](scope.md#devices); ${LEFT_OUT}`;
const NO_WEBGL = 'no effect, with a warning: there is no WebGL provider';
const REFUSED_TENSOR = 'differs: such tensors are refused as feeds and fetches';
const PICTURES = "differs: takes a texture of WebGPU and returns a promise of a tensor in a buffer ([how](api/gpu.md#pictures-on-the-gpu)); tensors of WebGL's textures are refused as feeds and fetches";
/** @param {string[]} names @param {string} remark */
const all = (names, remark) => Object.fromEntries(names.map((name) => [name, remark]));

/** Members that differ. `TABLES` knows the options that have no effect. */
const REMARKS = {
  'Env.debug': 'differs: true prints all messages, as `logLevel` "verbose" does',
  'Env.logLevel': 'differs: may change at any time',
  'Env.versions': "differs: `web` is this package's version",
  'Env.webgl': NO_WEBGL,
  'Env.WasmFilePaths': "differs: `mjs` is the address of worker.mjs, `wasm` that of pyodide.asm.wasm; files of other packages are ignored with a warning",
  'Env.WasmPathPrefix': "differs: a folder without this package's files is ignored with a warning",
  'Env.WebAssemblyFlags.numThreads': 'differs: may change before each session; without it as many as there are processors, four at most',
  'Env.WebAssemblyFlags.proxy': 'differs: the engine is always in a worker; true keeps short runs there, too',
  'Env.WebAssemblyFlags.simd': 'differs: kernels use relaxed SIMD if the browser has it, unless it is "fixed"; there is no code without SIMD',
  'Env.WebAssemblyFlags.trace': 'differs: `create` and `run` are traced',
  'Env.WebAssemblyFlags.wasmPaths': "differs: addresses of this package's files; files of other packages are ignored with a warning",
  'Env.WebGpuProfilingDataV1': "differs: describes our kernels: `kernelName` is the node, `programName` the kernel; times are nanoseconds after the run's first kernel",
  'Env.WebGpuProfilingDataV1TensorMetadata': 'differs: one for all buffers of a kernel, in bytes',
  'Env.trace': 'differs: `create` and `run` are traced',
  'Env.WebGLFlags': NO_WEBGL,
  'Env.WebGpuFlags.adapter': 'differs: acts on sessions created after it is set, and may be set again; reading gives the adapter after the first session on the GPU',
  'Env.WebGpuFlags.device': "differs: acts on sessions created after it is set, at any time; reading gives the page's device, and sessions move there when they get its buffers",
  'Env.WebGpuFlags.powerPreference': 'differs: "high-performance" by default; acts before the first session on the GPU',
  'InferenceSession.endProfiling': "differs: prints the trace, for Chrome's viewer or Perfetto, and returns it as text; it shows the kernels of a run one after the other, each on one thread",
  'InferenceSession.release': 'differs: a second call does nothing',
  'InferenceSession.run': 'differs: a feed may be an array of tensors (a sequence) or null (an absent optional); errors are [ours](errors/README.md)',
  'InferenceSession.startProfiling': 'differs: begins a trace; has no effect in onnxruntime-web',
  'InferenceSession.RunOptions.extra': 'differs: `memory.enable_memory_arena_shrinkage` acts; other entries give a warning',
  'InferenceSession.RunOptions.tag': 'differs: names the run in messages',
  'InferenceSession.RunOptions.terminate': 'differs: may be set during the run: `Terminated`',
  'InferenceSession.SessionOptions.enableGraphCapture': 'differs: outputs stay on the GPU; every session keeps its plans, and feeds may be anywhere',
  'InferenceSession.SessionOptions.enableProfiling': 'differs: the trace has the kernels, those on the GPU in a row of their own, timed by `timestamp-query` if the adapter has it',
  'InferenceSession.SessionOptions.executionProviders': 'differs: "webgpu", "wasm", "cpu" and [those that you bring](extending.md#providers); "wasm" by default',
  'InferenceSession.SessionOptions.extra': 'differs: `session.disable_program_cache` acts; entries that ask for another engine are refused, others give a warning',
  'InferenceSession.SessionOptions.graphOptimizationLevel': 'differs: [the option](api/options.md) says what a level does',
  'InferenceSession.SessionOptions.optimizedModelFilePath': 'refused: an optimised model is a Program and no ONNX graph; `pyruntime export` writes Programs',
  'InferenceSession.SessionOptions.preferredOutputLocation': 'differs: "cpu" and "gpu-buffer"; "gpu-buffer" is refused without the provider "webgpu", others always',
  ...all(['CoreMLExecutionProviderOption', 'CudaExecutionProviderOption', 'DmlExecutionProviderOption', 'NnapiExecutionProviderOption',
    'QnnExecutionProviderOption', 'TensorRtExecutionProviderOption', 'XnnpackExecutionProviderOption']
    .map((name) => `InferenceSession.${name}`), ELSEWHERE),
  ...all(['WebGLExecutionProviderOption', 'WebNNContextOptions', 'WebNNExecutionProviderName', 'WebNNExecutionProviderOption',
    'WebNNOptionsWebGpu', 'WebNNOptionsWithMLContext', 'WebNNOptionsWithoutMLContext']
    .map((name) => `InferenceSession.${name}`), OF_PAGES),
  ...all(['coreml', 'cuda', 'dml', 'nnapi', 'qnn', 'tensorrt', 'xnnpack']
    .map((name) => `InferenceSession.ExecutionProviderOptionMap.${name}`), ELSEWHERE),
  ...all(['webgl', 'webnn'].map((name) => `InferenceSession.ExecutionProviderOptionMap.${name}`), OF_PAGES),
  ...all(['MLTensorConstructorParameters', 'TextureConstructorParameters'], REFUSED_TENSOR),
  ...all(['TensorConstructor.fromMLTensor', 'TensorFactory.fromMLTensor'], REFUSED_TENSOR),
  ...all(['TensorConstructor.fromTexture', 'TensorFactory.fromTexture'], PICTURES),
};

/** The interfaces of options in the types, and our tables, which must have an entry for each option. */
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

/** Names of all declarations that the types export, and of the members of interfaces. @returns {string[]} */
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

/** The remark on a member; a remark on a type holds for its members. @param {string} name @returns {string} */
function remark(name) {
  const owner = ownerOf(name);
  const option = /** @type {Record<string, import('../web/page/options/option_kinds.js').Table>} */ (TABLES)[owner]?.[name.slice(owner.length + 1)];
  const noEffect = option?.noEffect && `no effect, with a warning: ${option.noEffect}`;
  return /** @type {Record<string, string>} */ (REMARKS)[name] ?? noEffect ?? (isType(owner) ? remark(owner) : 'same');
}

/** @param {string} name */
const ownerOf = (name) => name.slice(0, Math.max(0, name.lastIndexOf('.')));
/** Env and InferenceSession are namespaces, too: a remark on them does not hold for their members. @param {string} name */
const isType = (name) => name !== '' && name !== 'Env' && name !== 'InferenceSession' && name !== 'Tensor';
/** A member has no row if its remark is that of its type. @param {string} name */
const isListed = (name) => !isType(ownerOf(name)) || remark(name) !== remark(ownerOf(name));

const names = members();
const wrong = missing(names);
if (wrong.length) throw new Error(wrong.join('\n'));
const listed = names.filter(isListed);
const rows = listed.filter((name) => remark(name) !== 'same').map((name) => `| \`${name}\` | ${remark(name)} |`);
/** Members that are the same, by their type. @type {Map<string, string[]>} */
const same = new Map();
for (const name of listed.filter((one) => remark(one) === 'same')) {
  const owner = ownerOf(name);
  same.set(owner, [...same.get(owner) ?? [], `\`${name.slice(owner && owner.length + 1)}\``]);
}
const alike = [...same].map(([owner, members]) => `| ${owner && `of \`${owner}\`: `}${members.join(', ')} | same |`);
const table = ['| | |', '|---|---|', ...rows, ...alike].join('\n');
const before = await readFile(PAGE, 'utf8');
const [head, rest] = before.split(BEGIN);
const after = head + BEGIN + table + END + rest.split(END)[1];
if (!process.argv.includes('--check')) await writeFile(PAGE, after);
else if (after !== before) throw new Error('docs/compatibility.md is stale: node scripts/compatibility.mjs');

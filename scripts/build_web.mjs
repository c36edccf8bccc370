// Builds dist/ (the npm package: bundles, worker, Pyodide, byte code, types) and build/site/ (the demo site).
// Usage: node scripts/build_web.mjs [--site-only] [--compress]    --compress: also write .br and .gz files

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { loadPyodide } from 'pyodide';
import { NO_ADDRESS, trimmed, trimmedLoader } from './glue.mjs';
import { LINK, TABLE } from './memory_image.mjs';
import { snapshot } from './snapshot.mjs';
import { compressAll, walk, writeList } from './list_files.mjs';
import { buildSite } from './site.mjs';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const DIST = join(ROOT, 'dist');
const CACHE = join(ROOT, 'build', 'web');
const PYODIDE = join(ROOT, 'node_modules', 'pyodide');
const SITE = join(ROOT, 'build', 'site');
const PYTHON = process.env.PYTHON || join(ROOT, '.venv', 'bin', 'python');

await runPython('scripts.javascript'); // writes web/runtime, which load_code.js imports
const { SHARED } = await import('../web/page/executor/load_code.js');
const { SHARED: SHARED_IN_WORKER } = await import('../web/worker/models/trainer_code.js');

/** The script's own address, for builds without import.meta. In a worker it is found in a stack trace. */
const SCRIPT_URL = `const __script = (typeof document !== 'undefined' && document.currentScript && document.currentScript.src)
  || (/[a-z-]+:\\/\\/[^\\s()]+?(?=:\\d+:\\d+)/.exec(new Error().stack) || [])[0] || (typeof location !== 'undefined' ? location.href : 'file:///');`;

/** Pyodide refuses to start in a classic worker: a dedicated or shared one has import(), in a service worker our file contains the
 * modules that Pyodide would import. So importScripts is hidden. */
const NOT_CLASSIC = { // an own property: deleting it shows the inherited one again
  banner: { js: 'self.importScripts = undefined;' }, footer: { js: 'delete self.importScripts;' },
};

/** Wraps the build for <script>. Its only global name is `ort`, so pages can include it twice, and in two versions. */
const IN_FUNCTION = { banner: { js: `var ort = (() => { const module = {}; ${SCRIPT_URL}` }, footer: { js: 'return module.exports; })();' } };

/** The module's own address, for require() in Node.js. */
const MODULE_URL = `const __script = require('node:url').pathToFileURL(__filename).href;`;

/** Removes Pyodide's code for Node.js: it imports modules that browsers lack, for which bundlers of our bundle would
 * look. */
const NO_NODE = { process: 'undefined', 'globalThis.process': 'undefined', Deno: 'undefined', Bun: 'undefined', Buffer: 'undefined' };
const browserOnly = {
  name: 'browser-only',
  setup(builder) {
    builder.onResolve({ filter: /^(node:.*|ws)$/ }, ({ path }) => ({ path, namespace: 'none' }));
    builder.onLoad({ filter: /.*/, namespace: 'none' }, () => ({ contents: 'export default {};' }));
  },
};

/** Inserts the name of this build into web/worker/build.js. @param {string} name */
const named = (name) => ({
  name: 'named',
  setup(builder) {
    builder.onLoad({ filter: /web\/worker\/build\.js$/ }, () => ({ contents: `export const BUILD = '${name}';` }));
  },
});

/** Replaces Pyodide's JavaScript by its used part. */
const trimsGlue = {
  name: 'trims-glue',
  setup(builder) {
    builder.onLoad({ filter: /pyodide\.asm\.mjs$/ }, async () => ({ contents: (await glue()).code }));
  },
};
const trimsLoader = {
  name: 'trims-loader',
  setup(builder) {
    builder.onLoad({ filter: /pyodide\.mjs$/ }, async ({ path }) => ({ contents: trimmedLoader(await readFile(path, 'utf8')) }));
  },
};

/** Makes modules that the page also has parameters of executor.mjs, training.mjs or pictures.mjs, so that their classes and counters exist once. */
const sharesModules = (shared) => ({
  name: 'shares-modules',
  setup(builder) {
    builder.onResolve({ filter: /\.js$/ }, ({ path, resolveDir }) => {
      const file = relative(join(ROOT, 'web'), join(resolveDir, path));
      return file in shared ? { path: file, external: true } : undefined;
    });
  },
});

/**
 * Comments keep bundlers from following the import of a script, but esbuild drops comments and spaces. So a name of the
 * same length replaces them until esbuild has written the bundle, which keeps the source map correct.
 */
const keepsComments = {
  name: 'keeps-comments',
  setup(builder) {
    const comments = '/* webpackIgnore: true */ /* @vite-ignore */ ';
    const name = '_'.repeat(comments.length);
    const swapped = async (path, from, to) => {
      const [before, after, ...more] = (await readFile(path, 'utf8')).split(from);
      if (after === undefined || more.length) throw new Error(`${path} does not import a script as scripts/build_web.mjs knows`);
      return before + to + after;
    };
    let loaded = false;
    builder.onLoad({ filter: /common\/import_script\.js$/ }, async ({ path }) => {
      loaded = true;
      return { contents: await swapped(path, `${comments}address`, `${name}(address)`) };
    });
    builder.onEnd(async () => {
      const { outfile } = builder.initialOptions;
      if (loaded) await writeFile(outfile, await swapped(outfile, name, comments));
    });
  },
};

/** What few pages need, with a file of its own for what is imported late. */
const EXTRAS = { format: /** @type {const} */ ('esm'), splitting: true, outExtension: { '.js': '.mjs' }, chunkNames: '[name]' };

/** The reader of formats shares nothing: a second chunk of shared modules would have the name of the first. */
const formatsApart = {
  name: 'formats-apart',
  setup(builder) {
    builder.onResolve({ filter: /\/formats\/formats\.js$/ }, ({ kind }) => (kind === 'dynamic-import' ? { path: './formats.mjs', external: true } : undefined));
  },
};

/** Bundles of pages shorten the names of private members, which modules translated from Python write with an underscore. */
const PRIVATE = { mangleProps: /^_[a-z]/, reserveProps: /^_module$/ };

/** Modules of functions without state: a copy of the used functions is smaller than all functions shared. */
const IN_BOTH = ['web/common/linear_memory.js', 'web/common/python_builtins.js', 'web/runtime/growth.js', 'web/runtime/trial.js', 'web/threads/mailbox.js'];

/** Refuses other modules that are in both the page's bundle and executor.mjs. @param {import('esbuild').BuildResult[]} built */
function checkApart(...built) {
  const [page, executor] = built.map(({ metafile }) => Object.entries(metafile.inputs).filter(([, { bytes }]) => bytes).map(([file]) => file));
  const twice = executor.filter((file) => page.includes(file) && !IN_BOTH.includes(file));
  if (twice.length) throw new Error(`SHARED of web/page/executor/load_code.js lacks ${twice.join(', ')}`);
}

/** The build's name, which changes with the engine, the standard library and the interpreter's halves. It is part of
 * the keys of cached Programs. */
const buildName = () => (name ??= hashed());
/** @type {Promise<string> | undefined} computed once per build: sources that change meanwhile count for the next build
 * */
let name;

async function hashed() {
  const hash = createHash('sha256').update(await stdlibStamp()).update(await splitStamp());
  for (const [file, bytes] of Object.entries(await engineSources()).sort()) hash.update(file).update(bytes);
  return hash.digest('hex').slice(0, 16);
}

async function bundles() {
  const common = { bundle: true, target: 'es2022', legalComments: 'none', sourcemap: true, logLevel: 'warning' };
  const index = { ...common, entryPoints: [join(ROOT, 'web/index.js')], minify: true, ...PRIVATE, plugins: [keepsComments] };
  const worker = { ...common, minify: true, format: 'esm', plugins: [browserOnly], define: NO_NODE };
  const script = { define: { 'import.meta.url': '__script' }, banner: { js: SCRIPT_URL } };
  const inServiceWorkers = {
    entryPoints: [join(ROOT, 'web/service_worker.js')], format: 'iife', sourcemap: false, outfile: join(DIST, 'engine.sw.js'),
    define: { ...NO_NODE, 'import.meta.url': 'location.href' }, ...NOT_CLASSIC,
  };
  const node = { ...index, platform: 'node', entryPoints: [join(ROOT, 'web/node.js')] };
  const late = (name) => ({
    ...index, entryPoints: [join(ROOT, `web/page/${name}/entry.js`)], plugins: [sharesModules(SHARED)], format: 'cjs', outfile: join(DIST, `${name}.mjs`),
    banner: { js: 'export default (require) => { const module = {};' }, footer: { js: 'return module.exports; };' }, metafile: true,
  });
  const [page, executor, pictures, trainer] = await Promise.all([
    build({ ...index, format: 'esm', outfile: join(DIST, 'ort.mjs'), metafile: true }),
    build(late('executor')),
    build(late('pictures')),
    training(index),
    build({ ...index, ...script, format: 'cjs', outfile: join(DIST, 'ort.cjs') }),
    build({ ...index, ...script, ...IN_FUNCTION, format: 'cjs', outfile: join(DIST, 'ort.js') }),
    build({ ...index, format: 'iife', globalName: 'executor', sourcemap: false, entryPoints: [join(ROOT, 'web/pyodide.js')], outfile: join(ROOT, 'pyruntime/pyodide/executor.js') }),
    build({ ...node, format: 'esm', outfile: join(DIST, 'ort.node.mjs') }),
    build({ ...node, ...script, banner: { js: MODULE_URL }, format: 'cjs', outfile: join(DIST, 'ort.node.cjs') }),
    build({ ...node, format: 'esm', entryPoints: [join(ROOT, 'web/node/worker.js')], outfile: join(DIST, 'worker.node.mjs') }),
    build({ ...index, format: 'esm', entryPoints: [join(ROOT, 'web/module.js')], outfile: join(DIST, 'module.mjs') }),
    build({ ...index, ...EXTRAS, plugins: [keepsComments, formatsApart], entryPoints: { extras: join(ROOT, 'web/extras/index.js') }, outdir: DIST }),
    build({ ...index, format: 'esm', entryPoints: [join(ROOT, 'web/extras/formats/formats.js')], outfile: join(DIST, 'formats.mjs') }),
    build({ ...index, platform: 'node', format: 'esm', entryPoints: [join(ROOT, 'web/node/testing.js')], outfile: join(DIST, 'testing.mjs') }),
    build({ ...index, ...EXTRAS, splitting: false, entryPoints: { offline: join(ROOT, 'web/offline/install.js'), 'offline.sw': join(ROOT, 'web/offline/service_worker.js') }, outdir: DIST }),
    build({ ...index, format: 'iife', entryPoints: [join(ROOT, 'web/offline/classic_service_worker.js')], outfile: join(DIST, 'offline.sw.js') }),
    build({ ...worker, ...NOT_CLASSIC, plugins: [browserOnly, trimsLoader, keepsComments, named(await buildName())], entryPoints: [join(ROOT, 'web/worker.js')], outfile: join(DIST, 'worker.mjs') }),
    build({ ...worker, ...inServiceWorkers, plugins: [browserOnly, trimsGlue, trimsLoader, named(await buildName())] }),
    build({ ...worker, plugins: [browserOnly, trimsGlue], entryPoints: [join(PYODIDE, 'pyodide.asm.mjs')], sourcemap: false, outfile: join(DIST, 'pyodide.asm.mjs') }),
  ]);
  checkApart(page, executor);
  checkApart(page, pictures);
  checkApart(page, trainer);
  await Promise.all(['worker', 'pyodide.asm', 'executor', 'training', 'pictures'].map((name) => cp(join(DIST, `${name}.mjs`), join(DIST, `${name}.bin`)))); // for assets.js
}

/** Writes training.mjs: what trains and quantises models, in the page and in the worker. */
async function training(index) {
  const how = { ...index, format: 'cjs', sourcemap: false, write: false, metafile: true };
  const part = (entry, shared) => build({ ...how, entryPoints: [join(ROOT, `web/${entry}`)], plugins: [sharesModules(shared)], outfile: 'x.js' });
  const [page, worker] = await Promise.all([part('page/training/entry.js', SHARED), part('worker/models/rare_code.js', SHARED_IN_WORKER)]);
  const [inPage, inWorker] = [page, worker].map(({ outputFiles: [{ text }] }) => `(require) => { const module = {};${text}return module.exports; };`);
  await writeFile(join(DIST, 'training.mjs'), `export default ${inPage}\nexport const inWorker = ${inWorker}\n`);
  return page;
}

/** The files that write and read the memory image. */
const IMAGE = ['scripts/snapshot.mjs', 'scripts/memory_image.mjs', 'scripts/restore_wasm.py', 'web/worker/interpreter/memory_image.js', 'web/worker/interpreter/python.js'];

/** Returns Pyodide's JavaScript, trimmed, and the exports that it uses. */
const glue = () => (cut ??= madeGlue());
/** @type {ReturnType<typeof madeGlue> | undefined} */
let cut;

async function madeGlue() {
  const users = [join(PYODIDE, 'pyodide.mjs'), ...IMAGE.map((file) => join(ROOT, file))];
  const [source, ...others] = await Promise.all([join(PYODIDE, 'pyodide.asm.mjs'), ...users].map((file) => readFile(file, 'utf8')));
  const imports = WebAssembly.Module.imports(await WebAssembly.compile(await readFile(join(PYODIDE, 'pyodide.asm.wasm'))));
  return trimmed(source, others.join('\n'), new Set(imports.map(({ name }) => name).filter((name) => !NO_ADDRESS.test(name))));
}

/** Every source below `folder`, as paths relative to the repository. */
async function sources(folder) {
  const files = await walk(join(ROOT, folder));
  return files.filter((file) => !file.includes('__pycache__')).map((file) => `${folder}/${file}`);
}

/** Returns the engine's sources: pyruntime and providers, without the packages that only native programs use. */
async function engineSources() {
  const files = [...(await sources('pyruntime')), ...(await sources('providers'))];
  const kept = files.filter((file) => /\.(py|wgsl)$/.test(file) && !/^pyruntime\/(api|cli|onnxruntime)\//.test(file));
  const entries = kept.map(async (file) => [file.replace(/^providers/, 'pyruntime/providers'), new Uint8Array(await readFile(join(ROOT, file)))]);
  return Object.fromEntries(await Promise.all(entries));
}

/** Sources that pages cannot use: they need wasmtime or wgpu, or another Pyodide, or JavaScript does their work in pages. */
const NATIVE = /\/(native|pyodide|training\/session|serving|c_library)\/|pyruntime\/testing\.py$|\/(host_threads|huge_pages|shared_pages|lora_adapter|native_(codes|imports|lanes|words)|provider_(check|models)|run_options|session_adapters|watch|(wasmtime|wgpu)_\w+)\.py$/;

/** The engine's sources for a page; of pyruntime/runtime/, which is also translated to JavaScript, what other sources import. */
async function forPages() {
  const all = Object.fromEntries(Object.entries(await engineSources()).filter(([file]) => !NATIVE.test(file)));
  const found = Object.keys(all).filter((file) => !file.startsWith('pyruntime/runtime/') || file.endsWith('__init__.py'));
  for (const file of found) { // which grows meanwhile
    const imported = new TextDecoder().decode(all[file]).matchAll(/\bpyruntime\.runtime\.(\w+)/g);
    found.push(...[...imported].map(([, name]) => `pyruntime/runtime/${name}.py`).filter((one) => one in all && !found.includes(one)));
  }
  return Object.fromEntries(found.map((file) => [file, all[file]]));
}

const STOCK = join(PYODIDE, 'python_stdlib.zip');

/** Byte code has line numbers but no columns, because browsers have no sources in which to show these. */
const env = { HOME: '/', PYTHONNODEBUGRANGES: '1' };

/** Starts a Pyodide with the library `stdlib` and runs a file of scripts/ in it. */
async function booted(file, stdlib = STOCK) {
  const pyodide = await loadPyodide({ indexURL: PYODIDE, stdLibURL: stdlib, env });
  pyodide.runPython(await readFile(join(ROOT, 'scripts', file), 'utf8'));
  return pyodide;
}

/** @param proxy Python bytes */
function take(proxy) {
  const bytes = proxy.toJs();
  proxy.destroy();
  return bytes;
}

/** A stamp that changes with Pyodide, pack.py and the engine's imports. */
async function stdlibStamp() {
  const { version } = JSON.parse(await readFile(join(PYODIDE, 'package.json'), 'utf8'));
  const files = ['scripts/pack.py', 'scripts/used_modules.py', ...(await sources(SHORT))];
  const texts = await Promise.all(files.map((file) => readFile(join(ROOT, file), 'utf8')));
  return `${version} ${JSON.stringify(env)} ${await imports()} ${texts.join('')}`;
}

/** Returns the names of modules that the engine imports. */
async function imports() {
  const text = Object.values(await forPages()).map((bytes) => new TextDecoder().decode(bytes)).join('\n');
  const names = new Set([...text.matchAll(/^[ \t]*(?:from|import) ([\w.]+)/gm)].map(([, name]) => name));
  names.delete('importlib.metadata'); // only used to find installed providers, which pages do not have
  return [...names].sort();
}

/**
 * Copies cached files to dist/, after making them again if the stamp has changed.
 * @param {string[]} names @param {string} stamp @param {() => Promise<Uint8Array[]>} make
 */
async function kept(names, stamp, make) {
  const mark = join(CACHE, `${names[0]}.stamp`);
  if (await readFile(mark, 'utf8').catch(() => '') !== stamp) {
    await mkdir(CACHE, { recursive: true });
    const made = await make();
    await rm(mark, { force: true });
    for (const [n, bytes] of made.entries()) await writeFile(join(CACHE, names[n]), bytes);
    await writeFile(mark, stamp);
  }
  await Promise.all(names.map((name) => cp(join(CACHE, name), join(DIST, name))));
}

const LIBRARY = '/lib/python314.zip'; // where Pyodide puts its standard library
const SHORT = 'scripts/stdlib'; // modules that replace Pyodide's or add to them

/** Makes two archives of the standard library: the modules that the engine needs, and the rest. */
async function stdlib() {
  await kept(['python_stdlib.zip', 'python_rest.zip'], await stdlibStamp(), async () => {
    const short = Object.fromEntries(await Promise.all((await sources(SHORT)).map(async (file) => {
      return [relative(SHORT, file), new Uint8Array(await readFile(join(ROOT, file)))];
    })));
    const { globals } = await booted('pack.py');
    const prepared = join(CACHE, 'prepared_stdlib.zip');
    await writeFile(prepared, take(globals.get('prepared')(LIBRARY, short)));
    const used = (await booted('used_modules.py', prepared)).globals.get('used_by')(await imports());
    const made = globals.get('stdlib')(LIBRARY, used.toJs(), short);
    return [take(made.get(0)), take(made.get(1))];
  });
}

/** Makes the engine's byte code, and imports it, so that a missing module of the standard library fails the build. */
async function engine() {
  await kept(['engine.zip'], await buildName(), async () => {
    const bytes = take((await booted('pack.py')).globals.get('engine')(await forPages()));
    const pyodide = await loadPyodide({ indexURL: PYODIDE, stdLibURL: join(DIST, 'python_stdlib.zip') });
    useEngine(pyodide, bytes);
    pyodide.runPython('from pyruntime import browser; from pyruntime.frontend import registry; registry.complete()');
    return [bytes];
  });
}

/** Makes the wheel, and the lock file through which a Pyodide finds it, by Python's tools. */
const wheel = () => runPython('scripts.wheel', DIST, join(PYODIDE, 'pyodide-lock.json'));

/** Runs a Python module of the project. @param {string} module @param {string[]} options */
async function runPython(module, ...options) {
  await promisify(execFile)(PYTHON, ['-m', module, ...options], { cwd: ROOT }).catch(({ code, stderr }) => {
    console.error(code === 'ENOENT' ? `there is no ${PYTHON}: scripts/setup.sh python makes it, or PYTHON names another` : stderr);
    process.exit(1);
  });
}

/** @param pyodide @param {Uint8Array} bytes of engine.zip */
function useEngine(pyodide, bytes) {
  pyodide.FS.writeFile('/lib/engine.zip', bytes);
  pyodide.runPython('import sys; sys.path.insert(0, "/lib/engine.zip")');
}

const SPLITTER = ['wasm_data.py', 'warm_wasm.py', 'split_wasm.py'];

/** A stamp that changes with Pyodide, the code that splits its WebAssembly, and the profile of used functions. */
async function splitStamp() {
  const files = [...SPLITTER, 'glue.mjs', 'unused_glue.mjs', 'python_used.txt', 'python_hot.txt', 'python_data.txt'].map((file) => readFile(join(ROOT, 'scripts', file), 'utf8'));
  const { exports } = await glue();
  return `${await stdlibStamp()} ${[...exports].sort()} ${(await Promise.all(files)).join('')}`;
}

/** Splits Pyodide's WebAssembly in two halves. The first lacks exports that the JavaScript does not mention. */
async function halves() {
  await kept(['pyodide.asm.wasm', 'pyodide.rest.wasm'], await splitStamp(), async () => {
    const pyodide = await loadPyodide({ indexURL: PYODIDE });
    useEngine(pyodide, new Uint8Array(await readFile(join(DIST, 'engine.zip'))));
    pyodide.FS.mkdirTree('/lib/split/scripts');
    for (const file of SPLITTER) pyodide.FS.writeFile(`/lib/split/scripts/${file}`, await readFile(join(ROOT, 'scripts', file)));
    pyodide.runPython('import sys; sys.path.insert(0, "/lib/split")');
    const whole = new Uint8Array(await readFile(join(PYODIDE, 'pyodide.asm.wasm')));
    const [used, hot, later] = await Promise.all(['used', 'hot', 'data'].map((name) => readFile(join(ROOT, `scripts/python_${name}.txt`), 'utf8')));
    const { exports } = await glue();
    const made = pyodide.pyimport('scripts.split_wasm').halves(whole, used, hot, later, (name) => exports.has(name));
    return [take(made.get(0)), take(made.get(1))];
  });
}

/** Makes the WebAssembly that restores the memory image. */
async function restoring() {
  const pyodide = await loadPyodide({ indexURL: PYODIDE });
  useEngine(pyodide, new Uint8Array(await readFile(join(DIST, 'engine.zip'))));
  pyodide.runPython(await readFile(join(ROOT, 'scripts/restore_wasm.py'), 'utf8'));
  return take(pyodide.globals.get('code')(LINK, TABLE));
}

/** Makes the memory image of a started Python. */
async function image() {
  const parts = await Promise.all(IMAGE.map((file) => readFile(join(ROOT, file), 'utf8')));
  await kept(['python.image.wasm'], `${await buildName()} ${parts.join('')}`, async () => {
    const file = join(CACHE, 'pyodide.trimmed.mjs');
    await writeFile(file, (await glue()).code);
    const code = await restoring();
    await writeFile(join(CACHE, 'restore.wasm'), code); // scripts/profile_python.py also makes an image with it
    return [await snapshot(DIST, PYODIDE, file, await buildName(), code)];
  });
}

/** Makes the files that need Python, each after the one that it depends on. */
async function python() {
  await stdlib();
  await engine();
  await halves();
  await image();
}

/** Files of dist/ that no page fetches from here: for Node.js, bundlers, pip and tools; and service workers, which browsers store
 * themselves. */
const NOT_IN_PAGES = /\.(map|cjs|ts|cts|whl|bin)$|\.node\.|^pyodide-lock|^testing\.|\.sw\./;

/** Writes what checks a provider in JavaScript, and its models. */
async function providerCheck() {
  await cp(join(ROOT, 'web/provider_check.js'), join(DIST, 'provider_check.mjs'));
  await runPython('pyruntime.provider_models', join(DIST, 'provider_models.json'));
}

/** Writes the types twice, for import and for require(), because TypeScript reads a file as only one of both. */
async function types() {
  for (const name of ['index', 'pictures', 'providers', 'training', 'quantize', 'ort', 'extras', 'module', 'offline', 'offline.sw', 'engine.sw', 'testing']) {
    const text = await readFile(join(ROOT, `web/${name}.d.ts`), 'utf8');
    await writeFile(join(DIST, `${name}.d.ts`), text);
    await writeFile(join(DIST, `${name}.d.cts`), text.replace(/'\.\/(index|pictures|providers|training|quantize)\.js'/g, "'./$1.cjs'"));
  }
}

/** Whether an option of scripts/build_web.mjs is given. */
const given = (name) => process.argv.includes(name);

const start = performance.now();
if (!given('--site-only')) {
  await rm(DIST, { recursive: true, force: true });
  await mkdir(DIST, { recursive: true });
  await Promise.all([bundles().then(wheel), types(), python(), runPython('scripts.error_pages'), providerCheck()]);
  await writeList(DIST, 'assets.json', (path) => !NOT_IN_PAGES.test(path));
  if (given('--compress')) await compressAll(DIST);
}
await runPython('scripts.site_models');
await buildSite(ROOT, DIST, SITE);
if (given('--compress')) await compressAll(SITE);
console.log(`dist/ and build/site/ built in ${((performance.now() - start) / 1000).toFixed(1)} s`);
process.exit(0);

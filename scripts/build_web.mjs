// Builds dist/ (the npm package: bundles, worker, Pyodide, byte code, types) and build/site/ (the demo site).
// Usage: node scripts/build_web.mjs [--site-only] [--compress], the latter with .br and .gz beside all files that get smaller

import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { build } from 'esbuild';
import { loadPyodide } from 'pyodide';
import { SHARED } from '../web/page/gpu/load_code.js';
import { NO_ADDRESS, trimmed } from './glue.mjs';
import { LINK, TABLE } from './memory_image.mjs';
import { snapshot } from './snapshot.mjs';
import { compressAll, walk, writeList } from './list_files.mjs';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const DIST = join(ROOT, 'dist');
const CACHE = join(ROOT, 'build', 'web');
const PYODIDE = join(ROOT, 'node_modules', 'pyodide');
const SITE = join(ROOT, 'build', 'site');
const PYTHON = process.env.PYTHON || join(ROOT, '.venv', 'bin', 'python');

/** Where the script itself was loaded from, for builds that have no import.meta; in a worker the stack tells it. */
const SCRIPT_URL = `const __script = (typeof document !== 'undefined' && document.currentScript && document.currentScript.src)
  || (/[a-z-]+:\\/\\/[^\\s()]+?(?=:\\d+:\\d+)/.exec(new Error().stack) || [])[0] || (typeof location !== 'undefined' ? location.href : 'file:///');`;

/** Pyodide refuses to run in a classic worker, since it could not import(); what it would import there is in our file. */
const NOT_CLASSIC = 'self.importScripts = undefined;'; // own; the inherited one is there again when this one is deleted

/** The same of require() in Node.js. */
const MODULE_URL = `const __script = require('node:url').pathToFileURL(__filename).href;`;

/** Pyodide's branches for Node.js import what no browser has, and bundlers that read our bundle would look for it. */
const NO_NODE = { process: 'undefined', 'globalThis.process': 'undefined', Deno: 'undefined', Bun: 'undefined' };
const browserOnly = {
  name: 'browser-only',
  setup(builder) {
    builder.onResolve({ filter: /^(node:.*|ws)$/ }, ({ path }) => ({ path, namespace: 'none' }));
    builder.onLoad({ filter: /.*/, namespace: 'none' }, () => ({ contents: 'export default {};' }));
  },
};

/** web/worker/build.js with the name of this build. @param {string} name */
const named = (name) => ({
  name: 'named',
  setup(builder) {
    builder.onLoad({ filter: /web\/worker\/build\.js$/ }, () => ({ contents: `export const BUILD = '${name}';` }));
  },
});

/** Pyodide's JavaScript without what nothing uses. */
const trimsGlue = {
  name: 'trims-glue',
  setup(builder) {
    builder.onLoad({ filter: /pyodide\.asm\.mjs$/ }, async () => ({ contents: (await glue()).code }));
  },
};

/** Modules that the page has anyway are parameters of gpu.mjs: classes and what they count stay one. */
const sharesModules = {
  name: 'shares-modules',
  setup(builder) {
    builder.onResolve({ filter: /\.js$/ }, ({ path, resolveDir }) => {
      const file = relative(join(ROOT, 'web'), join(resolveDir, path));
      return file in SHARED ? { path: file, external: true } : undefined;
    });
  },
};

/**
 * Bundlers leave the import of gpu.mjs alone by comments, which esbuild drops with spaces: until it has written the bundle
 * a name of their length is in their place, so that the source map stays true.
 */
const keepsComments = {
  name: 'keeps-comments',
  setup(builder) {
    const comments = '/* webpackIgnore: true */ /* @vite-ignore */ ';
    const name = '_'.repeat(comments.length);
    const swapped = async (path, from, to) => {
      const [before, after, ...more] = (await readFile(path, 'utf8')).split(from);
      if (after === undefined || more.length) throw new Error(`${path} does not import gpu.mjs as scripts/build_web.mjs knows`);
      return before + to + after;
    };
    let loaded = false;
    builder.onLoad({ filter: /gpu\/load_code\.js$/ }, async ({ path }) => {
      loaded = true;
      return { contents: await swapped(path, `${comments}gpu`, `${name}(gpu)`) };
    });
    builder.onEnd(async () => {
      const { outfile } = builder.initialOptions;
      if (loaded) await writeFile(outfile, await swapped(outfile, name, comments));
    });
  },
};

/** A module that is in the page's bundle and in gpu.mjs would be there twice. @param {import('esbuild').BuildResult[]} built */
function checkApart(...built) {
  const [page, gpu] = built.map(({ metafile }) => Object.entries(metafile.inputs).filter(([, { bytes }]) => bytes).map(([file]) => file));
  const twice = gpu.filter((file) => page.includes(file));
  if (twice.length) throw new Error(`SHARED of web/page/gpu/load_code.js lacks ${twice.join(', ')}`);
}

/** Another one for every change of the engine, of the standard library or of the interpreter's halves: it names the Programs that browsers keep. */
const buildName = () => (name ??= hashed());
/** @type {Promise<string> | undefined} one for all files of a build: sources that are made meanwhile change it for the next */
let name;

async function hashed() {
  const hash = createHash('sha256').update(await stdlibStamp()).update(await splitStamp());
  for (const [file, bytes] of Object.entries(await engineSources()).sort()) hash.update(file).update(bytes);
  return hash.digest('hex').slice(0, 16);
}

async function bundles() {
  const common = { bundle: true, target: 'es2022', legalComments: 'none', sourcemap: true, logLevel: 'warning' };
  const index = { ...common, entryPoints: [join(ROOT, 'web/index.js')], minify: true, plugins: [keepsComments] };
  const worker = { ...common, minify: true, format: 'esm', plugins: [browserOnly], define: NO_NODE };
  const script = { define: { 'import.meta.url': '__script' }, banner: { js: SCRIPT_URL } };
  const inServiceWorkers = {
    entryPoints: [join(ROOT, 'web/service_worker.js')], format: 'iife', sourcemap: false, outfile: join(DIST, 'engine.sw.js'),
    define: { ...NO_NODE, 'import.meta.url': 'location.href' }, banner: { js: NOT_CLASSIC }, footer: { js: 'delete self.importScripts;' },
  };
  const node = { ...index, platform: 'node', entryPoints: [join(ROOT, 'web/node.js')] };
  const late = {
    entryPoints: [join(ROOT, 'web/page/gpu/entry.js')], plugins: [sharesModules], format: 'cjs', outfile: join(DIST, 'gpu.mjs'),
    banner: { js: 'export default (require) => { const module = {};' }, footer: { js: 'return module.exports; };' },
  };
  const [page, gpu] = await Promise.all([
    build({ ...index, format: 'esm', outfile: join(DIST, 'ort.mjs'), metafile: true }),
    build({ ...index, ...late, metafile: true }),
    build({ ...index, ...script, format: 'cjs', outfile: join(DIST, 'ort.cjs') }),
    build({ ...index, ...script, format: 'iife', globalName: 'ort', outfile: join(DIST, 'ort.js') }),
    build({ ...index, format: 'iife', globalName: 'executor', sourcemap: false, entryPoints: [join(ROOT, 'web/pyodide.js')], outfile: join(ROOT, 'pyruntime/pyodide/executor.js') }),
    build({ ...node, format: 'esm', outfile: join(DIST, 'ort.node.mjs') }),
    build({ ...node, ...script, banner: { js: MODULE_URL }, format: 'cjs', outfile: join(DIST, 'ort.node.cjs') }),
    build({ ...node, format: 'esm', entryPoints: [join(ROOT, 'web/node/worker.js')], outfile: join(DIST, 'worker.node.mjs') }),
    build({ ...index, format: 'esm', entryPoints: [join(ROOT, 'web/offline/install.js')], outfile: join(DIST, 'offline.mjs') }),
    build({ ...index, format: 'esm', entryPoints: [join(ROOT, 'web/offline/service_worker.js')], outfile: join(DIST, 'offline.sw.mjs') }),
    build({ ...index, format: 'iife', entryPoints: [join(ROOT, 'web/offline/classic_service_worker.js')], outfile: join(DIST, 'offline.sw.js') }),
    build({ ...worker, plugins: [browserOnly, named(await buildName())], entryPoints: [join(ROOT, 'web/worker.js')], outfile: join(DIST, 'worker.mjs') }),
    build({ ...worker, ...inServiceWorkers, plugins: [browserOnly, trimsGlue, named(await buildName())] }),
    build({ ...worker, plugins: [browserOnly, trimsGlue], entryPoints: [join(PYODIDE, 'pyodide.asm.mjs')], sourcemap: false, outfile: join(DIST, 'pyodide.asm.mjs') }),
  ]);
  checkApart(page, gpu);
}

/** What writes and reads the image of memory. */
const IMAGE = ['scripts/snapshot.mjs', 'scripts/memory_image.mjs', 'scripts/restore_wasm.py', 'web/worker/interpreter/memory_image.js', 'web/worker/interpreter/python.js'];

/** Pyodide's JavaScript, trimmed, and the exports that it uses. */
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

/** The engine's sources: pyruntime and providers, without what stands on them natively. */
async function engineSources() {
  const files = [...(await sources('pyruntime')), ...(await sources('providers'))];
  const kept = files.filter((file) => /\.(py|wgsl)$/.test(file) && !/^pyruntime\/(api|cli|onnxruntime)\//.test(file));
  const entries = kept.map(async (file) => [file.replace(/^providers/, 'pyruntime/providers'), new Uint8Array(await readFile(join(ROOT, file)))]);
  return Object.fromEntries(await Promise.all(entries));
}

/** Sources that only other Pythons can use: they need wasmtime or wgpu. */
const NATIVE = /\/(native|pyodide)\/|\/(host_threads|huge_pages|shared_pages|(wasmtime|wgpu)_\w+)\.py$/;

/** The engine's sources for a page. */
const forPages = async () => Object.fromEntries(Object.entries(await engineSources()).filter(([file]) => !NATIVE.test(file)));

const STOCK = join(PYODIDE, 'python_stdlib.zip');

/** What it compiles tells the lines of a traceback, but not their columns: no browser has the sources to show them in. */
const env = { HOME: '/', PYTHONNODEBUGRANGES: '1' };

/** A Pyodide on `stdlib`, in which a file of scripts/ has run. */
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

/** Another one for another Pyodide, another pack.py or other imports. */
async function stdlibStamp() {
  const { version } = JSON.parse(await readFile(join(PYODIDE, 'package.json'), 'utf8'));
  const files = ['scripts/pack.py', 'scripts/used_modules.py', ...(await sources(SHORT))];
  const texts = await Promise.all(files.map((file) => readFile(join(ROOT, file), 'utf8')));
  return `${version} ${JSON.stringify(env)} ${await imports()} ${texts.join('')}`;
}

/** Names of modules, and of what is in them, that the engine imports. */
async function imports() {
  const text = Object.values(await forPages()).map((bytes) => new TextDecoder().decode(bytes)).join('\n');
  const names = new Set([...text.matchAll(/^[ \t]*(?:from|import) ([\w.]+)/gm)].map(([, name]) => name));
  names.delete('importlib.metadata'); // asked for providers that are installed, as none is in a page
  return [...names].sort();
}

/**
 * Files of dist/, made again only for another stamp.
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
const SHORT = 'scripts/stdlib'; // modules in the place of Pyodide's, or besides

/** What the engine needs of the standard library, and the rest. */
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

/** The engine's byte code; a missing part of the standard library shows here and not in a browser. */
async function engine() {
  await kept(['engine.zip'], await buildName(), async () => {
    const bytes = take((await booted('pack.py')).globals.get('engine')(await forPages()));
    const pyodide = await loadPyodide({ indexURL: PYODIDE, stdLibURL: join(DIST, 'python_stdlib.zip') });
    useEngine(pyodide, bytes);
    pyodide.runPython('from pyruntime import browser; from pyruntime.frontend import registry; registry.complete()');
    return [bytes];
  });
}

/** The wheel, and the lock file by which a Pyodide finds it: the work of Python's own tools. */
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

/** Another one for another Pyodide, another way to split its WebAssembly, or other functions that are used. */
async function splitStamp() {
  const files = [...SPLITTER, 'glue.mjs', 'unused_glue.mjs', 'python_used.txt', 'python_hot.txt', 'python_data.txt'].map((file) => readFile(join(ROOT, 'scripts', file), 'utf8'));
  const { exports } = await glue();
  return `${await stdlibStamp()} ${[...exports].sort()} ${(await Promise.all(files)).join('')}`;
}

/** Pyodide's WebAssembly in halves, the first without exports that its JavaScript does not name. */
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

/** The code that puts a memory back. */
async function restoring() {
  const pyodide = await loadPyodide({ indexURL: PYODIDE });
  useEngine(pyodide, new Uint8Array(await readFile(join(DIST, 'engine.zip'))));
  pyodide.runPython(await readFile(join(ROOT, 'scripts/restore_wasm.py'), 'utf8'));
  return take(pyodide.globals.get('code')(LINK, TABLE));
}

/** The memory of a Python that has started. */
async function image() {
  const parts = await Promise.all(IMAGE.map((file) => readFile(join(ROOT, file), 'utf8')));
  await kept(['python.image.wasm'], `${await buildName()} ${parts.join('')}`, async () => {
    const file = join(CACHE, 'pyodide.trimmed.mjs');
    await writeFile(file, (await glue()).code);
    const code = await restoring();
    await writeFile(join(CACHE, 'restore.wasm'), code); // scripts/profile_python.py makes another image with it
    return [await snapshot(DIST, PYODIDE, file, await buildName(), code)];
  });
}

/** What Python makes: each needs the one before. */
async function python() {
  await stdlib();
  await engine();
  await halves();
  await image();
}

/** Files of dist/ that no page fetches: for Node.js, bundlers, pip and tools. Service workers are kept by browsers themselves. */
const NOT_IN_PAGES = /\.(map|cjs|ts|cts|whl)$|\.node\.|^pyodide-lock|\.sw\./;

/** The types, as ES modules and once more for require(): to TypeScript a file is one or the other. */
async function types() {
  for (const name of ['index', 'ort', 'offline', 'offline.sw', 'engine.sw']) {
    const text = await readFile(join(ROOT, `web/${name}.d.ts`), 'utf8');
    await writeFile(join(DIST, `${name}.d.ts`), text);
    await writeFile(join(DIST, `${name}.d.cts`), text.replaceAll("'./index.js'", "'./index.cjs'"));
  }
}

/** Options of scripts/build_web.mjs. */
const given = (name) => process.argv.includes(name);

/** The demo site, with the package and the models beside it: it may be served from any folder. */
async function site() {
  await rm(SITE, { recursive: true, force: true });
  await cp(join(ROOT, 'demo'), SITE, { recursive: true, filter: (path) => !/\.py$|__pycache__/.test(path) });
  await cp(DIST, join(SITE, 'dist'), { recursive: true });
  await cp(join(DIST, 'offline.sw.js'), join(SITE, 'offline.sw.js'));
  const vad = join(ROOT, 'node_modules/@ricky0123/vad-web/dist/silero_vad_v5.onnx');
  if (await stat(vad).catch(() => null)) await cp(vad, join(SITE, 'vad', 'silero_vad_v5.onnx'));
  const tokenizers = 'tokenizers.min.mjs';
  await cp(join(ROOT, 'node_modules/@huggingface/tokenizers/dist', tokenizers), join(SITE, 'text', tokenizers));
  await writeList(SITE, 'site.json', () => true, (path) => !/^dist\/|\.sw\.js$/.test(path));
  if (given('--compress')) await compressAll(SITE);
}

const start = performance.now();
if (!given('--site-only')) {
  await rm(DIST, { recursive: true, force: true });
  await mkdir(DIST, { recursive: true });
  await runPython('scripts.javascript'); // web/runtime
  await Promise.all([bundles().then(wheel), types(), python()]);
  await writeList(DIST, 'assets.json', (path) => !NOT_IN_PAGES.test(path));
  if (given('--compress')) await compressAll(DIST);
}
await site();
console.log(`dist/ and build/site/ built in ${((performance.now() - start) / 1000).toFixed(1)} s`);
process.exit(0);

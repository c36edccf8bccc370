// Builds dist/ (the npm package: bundles, worker, Pyodide, byte code, types) and build/site/ (the demo site).
// Usage: node scripts/build_web.mjs [--site-only]

import { createHash } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { loadPyodide } from 'pyodide';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const DIST = join(ROOT, 'dist');
const CACHE = join(ROOT, 'build', 'web');
const PYODIDE = join(ROOT, 'node_modules', 'pyodide');
const SITE = join(ROOT, 'build', 'site');

/** Where the script itself was loaded from, for builds that have no import.meta; in a worker the stack tells it. */
const SCRIPT_URL = `const __script = (typeof document !== 'undefined' && document.currentScript && document.currentScript.src)
  || (/[a-z-]+:\\/\\/[^\\s()@]+(?=:\\d+:\\d+)/.exec(new Error().stack) || [])[0] || (typeof location !== 'undefined' ? location.href : 'file:///');`;

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

/** Another one for every change of the engine or of the standard library: it names the snapshots that browsers keep. */
async function buildName() {
  const hash = createHash('sha256').update(await stdlibStamp());
  for (const [file, bytes] of Object.entries(await engineSources()).sort()) hash.update(file).update(bytes);
  return hash.digest('hex').slice(0, 16);
}

async function bundles() {
  const common = { bundle: true, target: 'es2022', legalComments: 'none', sourcemap: true, logLevel: 'warning' };
  const index = { ...common, entryPoints: [join(ROOT, 'web/index.js')], minify: true };
  const worker = { ...common, minify: true, format: 'esm', plugins: [browserOnly], define: NO_NODE };
  const script = { define: { 'import.meta.url': '__script' }, banner: { js: SCRIPT_URL } };
  const node = { ...index, platform: 'node', entryPoints: [join(ROOT, 'web/node.js')] };
  await Promise.all([
    build({ ...index, format: 'esm', outfile: join(DIST, 'ort.mjs') }),
    build({ ...index, ...script, format: 'cjs', outfile: join(DIST, 'ort.cjs') }),
    build({ ...index, ...script, format: 'iife', globalName: 'ort', outfile: join(DIST, 'ort.js') }),
    build({ ...node, format: 'esm', outfile: join(DIST, 'ort.node.mjs') }),
    build({ ...node, ...script, banner: { js: MODULE_URL }, format: 'cjs', outfile: join(DIST, 'ort.node.cjs') }),
    build({ ...node, format: 'esm', entryPoints: [join(ROOT, 'web/node/worker.js')], outfile: join(DIST, 'worker.node.mjs') }),
    build({ ...worker, plugins: [browserOnly, named(await buildName())], entryPoints: [join(ROOT, 'web/worker.js')], outfile: join(DIST, 'worker.mjs') }),
    build({ ...worker, entryPoints: [join(PYODIDE, 'pyodide.asm.mjs')], sourcemap: false, outfile: join(DIST, 'pyodide.asm.mjs') }),
  ]);
}

/** Every file below `folder`, as paths relative to the repository. */
async function walk(folder) {
  const entries = await readdir(join(ROOT, folder), { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => relative(ROOT, join(entry.parentPath, entry.name)));
  return files.filter((file) => !file.includes('__pycache__'));
}

/** The engine's sources: what the browser needs of pyruntime and providers. */
async function engineSources() {
  const files = [...(await walk('pyruntime')), ...(await walk('providers'))];
  const kept = files.filter((file) => /\.(py|wgsl)$/.test(file) && !/^pyruntime\/(api|cli|onnxruntime)\//.test(file));
  const entries = kept.map(async (file) => [file.replace(/^providers/, 'pyruntime/providers'), new Uint8Array(await readFile(join(ROOT, file)))]);
  return Object.fromEntries(await Promise.all(entries));
}

/** Boots Pyodide on `stdlib` and loads pack.py into it. */
async function packer(stdlib) {
  const pyodide = await loadPyodide({ indexURL: PYODIDE, stdLibURL: stdlib });
  pyodide.runPython(await readFile(join(ROOT, 'scripts/pack.py'), 'utf8'));
  return pyodide;
}

/** @param proxy Python bytes */
function take(proxy) {
  const bytes = proxy.toJs();
  proxy.destroy();
  return bytes;
}

/** Another one for another Pyodide or another pack.py. */
async function stdlibStamp() {
  const { version } = JSON.parse(await readFile(join(PYODIDE, 'package.json'), 'utf8'));
  return `${version} ${await readFile(join(ROOT, 'scripts/pack.py'), 'utf8')}`;
}

/** The trimmed standard library; made again only for another Pyodide or another pack.py. */
async function stdlib() {
  const target = join(CACHE, 'python_stdlib.zip');
  const stamp = await stdlibStamp();
  const made = await readFile(`${target}.stamp`, 'utf8').catch(() => '');
  if (made !== stamp) {
    const pyodide = await packer(join(PYODIDE, 'python_stdlib.zip'));
    await mkdir(CACHE, { recursive: true });
    await writeFile(target, take(pyodide.runPython('stdlib("/lib/python314.zip")')));
    await writeFile(`${target}.stamp`, stamp);
  }
  await cp(target, join(DIST, 'python_stdlib.zip'));
  return target;
}

/** The engine's byte code; a missing part of the standard library shows here and not in a browser. */
async function engine(library) {
  const pyodide = await packer(library);
  const pack = pyodide.globals.get('engine');
  const sources = await engineSources();
  const bytes = take(pack(sources));
  await writeFile(join(DIST, 'engine.zip'), bytes);
  pyodide.FS.writeFile('/lib/engine.zip', bytes);
  pyodide.runPython('import sys; sys.path.insert(0, "/lib/engine.zip")');
  if (await stat(join(ROOT, 'pyruntime/browser.py')).catch(() => null)) pyodide.runPython('import pyruntime.browser');
  await wheel(pyodide, sources);
}

/** The engine as a wheel and the pyodide-lock.json that lists it: for JupyterLite and micropip. */
async function wheel(pyodide, sources) {
  const { version, description, license } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
  const metadata = ['Metadata-Version: 2.4', 'Name: pyruntime', `Version: ${version}`, `Summary: ${description}`,
    `License-Expression: ${license}`, 'Requires-Python: >=3.11', '', ''].join('\n');
  const make = pyodide.globals.get('wheel');
  const made = make(sources, metadata);
  const name = `pyruntime-${version}-py3-none-any.whl`;
  const stock = await readFile(join(PYODIDE, 'pyodide-lock.json'), 'utf8');
  await writeFile(join(DIST, 'pyodide-lock.json'), pyodide.globals.get('lock')(stock, name, version, made));
  await writeFile(join(DIST, name), take(made));
}

async function assets() {
  await cp(join(PYODIDE, 'pyodide.asm.wasm'), join(DIST, 'pyodide.asm.wasm'));
  await types();
}

/** The types, as ES modules and once more for require(): to TypeScript a file is one or the other. */
async function types() {
  for (const name of ['index', 'ort']) {
    const text = await readFile(join(ROOT, `web/${name}.d.ts`), 'utf8');
    await writeFile(join(DIST, `${name}.d.ts`), text);
    await writeFile(join(DIST, `${name}.d.cts`), text.replaceAll("'./index.js'", "'./index.cjs'"));
  }
}

/** The demo site, with the package and the models beside it: it may be served from any folder. */
async function site() {
  await rm(SITE, { recursive: true, force: true });
  await cp(join(ROOT, 'demo'), SITE, { recursive: true, filter: (path) => !/\.py$|__pycache__/.test(path) });
  await cp(DIST, join(SITE, 'dist'), { recursive: true });
  const vad = join(ROOT, 'node_modules/@ricky0123/vad-web/dist/silero_vad_v5.onnx');
  if (await stat(vad).catch(() => null)) await cp(vad, join(SITE, 'vad', 'silero_vad_v5.onnx'));
}

const start = performance.now();
if (!process.argv.includes('--site-only')) {
  await rm(DIST, { recursive: true, force: true });
  await mkdir(DIST, { recursive: true });
  await Promise.all([bundles(), assets(), stdlib().then(engine)]);
}
await site();
console.log(`dist/ and build/site/ built in ${((performance.now() - start) / 1000).toFixed(1)} s`);
process.exit(0);

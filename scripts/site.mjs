// Builds the demo site into build/site: pages in the layout, the package, models, and the list of files for offline visits.

import { cp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'esbuild';
import { HOME, PAGES } from '../demo/pages.js';
import { walk, writeList } from './list_files.mjs';

/** @typedef {import('../demo/pages.js').Page} Page */

const SOURCES = /\.(js|css|html|onnx|json|svg|png|jpg|webmanifest|txt|py|ipynb)$/;
const NOT_SERVED = /(^|\/)(__\w+__\.py|network\.py|samples\.py|train\.py|weights\.py|layout\.html|pages\.js)$/;
/** Files that offline visits do not store ahead: too large for a visitor who has not asked for them, or stored by the list in dist/. */
const ON_REQUEST = /^(dist\/(?!(assets|pyodide-lock)\.json$)|models\/(?!gpu\.json$)|onnxruntime-web\/|docs\/)|\.sw\.js$/;

/** @param {string} path */
const exists = (path) => stat(path).then(() => true, () => false);

/** @param {string} text */
const escaped = (text) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');

/** The page in the layout. @param {string} layout @param {Page} page @param {string} content @param {Page[]} pages */
function laidOut(layout, page, content, pages) {
  const root = page.path && '../';
  const link = (/** @type {Page} */ { path, name, about }) => `<a href="${root}${path}index.html" title="${escaped(about)}"${path === page.path ? ' aria-current="page"' : ''}>${name}</a>`;
  const imports = Object.entries({ pyruntime: 'dist/ort.mjs', ...page.imports }).map(([name, path]) => [name, `./${root}${path}`.replace('./../', '../')]);
  const values = {
    root, title: escaped(page.title), about: escaped(page.about), script: page.script, content: content.trimEnd(), code: page.code.join(' '),
    styles: (page.styles ?? []).map((style) => `<link rel="stylesheet" href="${style}" />`).join(''),
    imports: JSON.stringify({ imports: Object.fromEntries(imports) }),
    nav: pages.map(link).join(''),
  };
  return layout.replace(/%(\w+)%/g, (found, name) => (name in values ? values[name] : found));
}

/** Copies a file that may be absent. @param {string} from @param {string} to */
async function copyIfThere(from, to) {
  if (await exists(from)) await cp(from, to, { recursive: true });
}

/** Files of npm packages that pages use. @param {string} root @param {string} site */
async function copyPackages(root, site) {
  const modules = join(root, 'node_modules');
  await copyIfThere(join(modules, '@ricky0123/vad-web/dist/silero_vad_v5.onnx'), join(site, 'vad', 'silero_vad_v5.onnx'));
  await cp(join(modules, '@huggingface/tokenizers/dist/tokenizers.min.mjs'), join(site, 'text', 'tokenizers.min.mjs'));
}

/** Bundles libraries that some pages load. Pages work without those that are not installed. @param {string} demo @param {string} site */
async function bundleLibraries(demo, site) {
  const how = { bundle: true, minify: true, format: /** @type {const} */ ('esm'), target: 'es2022', logLevel: /** @type {const} */ ('silent') };
  for (const file of ['editor.mjs', 'dagre.mjs', 'zip.mjs']) {
    await build({ ...how, entryPoints: [join(demo, 'vendor', file)], outfile: join(site, 'vendor', file) }).catch(({ message }) => {
      console.warn(`site: vendor/${file} is left out (npm ci installs what it needs): ${message.split('\n')[1] ?? message}`);
    });
  }
}

/** Networks and a peer that the host may put beside the pages. @param {string} root @param {string} site */
async function copyBeside(root, site) {
  await copyIfThere(join(root, 'build', 'site-models'), join(site, 'models'));
  const peer = join(root, 'node_modules', 'onnxruntime-web', 'dist');
  for (const file of ['ort.wasm.min.mjs', 'ort-wasm-simd-threaded.mjs', 'ort-wasm-simd-threaded.wasm']) {
    await copyIfThere(join(peer, file), join(site, 'onnxruntime-web', file));
  }
}

/** The documentation for users, if `make docs` has built it. Returns the link to it. @param {string} root @param {string} site */
async function copyDocs(root, site) {
  const docs = join(root, 'build', 'docs');
  if (!await exists(join(docs, 'index.html'))) return '';
  await cp(docs, join(site, 'docs'), { recursive: true });
  return '<a href="%root%docs/index.html" data-online>Documentation</a> · ';
}

/** @param {string} root the repository @param {string} dist the built package @param {string} site */
export async function buildSite(root, dist, site) {
  const demo = join(root, 'demo');
  await rm(site, { recursive: true, force: true });
  const layout = (await readFile(join(demo, 'layout.html'), 'utf8')).replace('%docs%', await copyDocs(root, site));
  for (const file of await walk(demo)) {
    if (SOURCES.test(file) && !NOT_SERVED.test(file)) await cp(join(demo, file), join(site, file));
  }
  const there = await Promise.all(PAGES.map(({ path }) => exists(join(demo, path, 'index.html'))));
  const pages = PAGES.filter((_, i) => there[i]);
  for (const file of [HOME, ...pages].flatMap(({ code }) => code)) {
    if (!await exists(join(site, file))) throw new Error(`demo/pages.js names ${file}, which is not there`);
  }
  for (const page of [HOME, ...pages]) {
    const file = join(page.path, 'index.html');
    await writeFile(join(site, file), laidOut(layout, page, await readFile(join(demo, file), 'utf8'), pages));
  }
  await cp(dist, join(site, 'dist'), { recursive: true });
  await cp(join(dist, 'offline.sw.js'), join(site, 'offline.sw.js'));
  await Promise.all([copyPackages(root, site), bundleLibraries(demo, site)]);
  await copyBeside(root, site);
  await writeList(site, 'site.json', () => true, (path) => !ON_REQUEST.test(path));
}

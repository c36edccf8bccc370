// Tests of pages in Playwright's Chromium, from Node.js: WebGPU by a software adapter, and no network but this machine.
// The same in Python: pyruntime/testing.py.

import { createReadStream } from 'node:fs';
import { realpath, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, resolve, sep } from 'node:path';
import { env } from 'node:process';
import { fileURLToPath } from 'node:url';

/** Chromium on this machine alone, with WebGPU wherever it runs, and a camera and a microphone. */
export const FLAGS = [
  '--no-first-run', '--disable-quic', '--disable-background-networking', '--disable-component-update', '--disable-sync',
  '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream',
];

/** For pages that draw on canvases by WebGPU or bind frames of videos: without, Chromium loses the device. */
export const DRAWING = ['--enable-features=Vulkan', '--use-angle=vulkan', '--use-vulkan=swiftshader'];

/** @typedef {{ chromium: { launch(options: object): Promise<unknown> } }} Playwright */

const ISOLATION = {
  'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp', 'Cross-Origin-Resource-Policy': 'same-origin',
};
/** @type {Record<string, string>} */
const TYPES = {
  '.bin': 'text/javascript', '.css': 'text/css', '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.json': 'application/json',
  '.mjs': 'text/javascript; charset=utf-8', '.png': 'image/png', '.svg': 'image/svg+xml', '.wasm': 'application/wasm',
};

/**
 * What Playwright's `launch` and the `launchOptions` of its test runner take. The environment variable PYRUNTIME_CHROMIUM names a browser
 * in place of Playwright's own.
 * @param {{ draws?: boolean, args?: string[] }} [options]
 */
export const launchOptions = ({ draws = false, args = [], ...options } = {}) => ({
  executablePath: env.PYRUNTIME_CHROMIUM, ...options, args: [...FLAGS, ...draws ? DRAWING : [], ...args],
});

/**
 * Playwright's Chromium. playwright: the package, if it cannot be imported from here.
 * @param {{ playwright?: Playwright, draws?: boolean, args?: string[] }} [options]
 */
export async function launch({ playwright, ...options } = {}) {
  const { chromium } = playwright ?? await firstOf(['playwright', 'playwright-core', '@playwright/test']);
  return chromium.launch(launchOptions(options));
}

/** The first of these packages that is installed. @param {string[]} names @returns {Promise<Playwright>} */
async function firstOf([name, ...others]) {
  try {
    return await import(name);
  } catch (error) {
    if (others.length) return firstOf(others);
    throw new Error('launch needs Playwright: npm install --save-dev playwright', { cause: error });
  }
}

/**
 * Serves folders by the beginning of their addresses, and this package as /pyruntime/, on a free port of this machine.
 * @param {string | Record<string, string>} folders @param {{ isolated?: boolean, headers?: Record<string, string>, port?: number }} [options]
 */
export async function serve(folders, { isolated = true, headers = {}, port = 0 } = {}) {
  const own = fileURLToPath(new URL('.', import.meta.url));
  const mounts = Object.entries({ '/pyruntime/': own, ...typeof folders === 'string' ? { '/': folders } : folders });
  mounts.sort(([a], [b]) => b.length - a.length);
  const server = createServer(async (request, response) => {
    for (const [name, value] of Object.entries({ 'Cache-Control': 'no-cache', ...isolated ? ISOLATION : {}, ...headers })) response.setHeader(name, value);
    const file = await find(mounts, request.url ?? '/').catch(() => null);
    if (file) send(file, request, response);
    else response.writeHead(404).end();
  });
  await new Promise((done, failed) => server.once('error', failed).listen(port, '127.0.0.1', () => done(null)));
  return {
    url: `http://localhost:${server.address().port}`,
    close: () => new Promise((done) => {
      server.close(() => done(null));
      server.closeAllConnections();
    }),
  };
}

/**
 * The file at an address, in the folder with the longest prefix; null outside of it.
 * @param {[string, string][]} mounts @param {string} url
 */
async function find(mounts, url) {
  const path = decodeURIComponent(new URL(url, 'http://localhost').pathname);
  const [prefix, folder] = mounts.find(([start]) => path.startsWith(start)) ?? [];
  if (prefix === undefined || folder === undefined) return null;
  const root = await realpath(resolve(folder));
  const file = await realpath(join(root, path.slice(prefix.length), path.endsWith('/') ? 'index.html' : ''));
  const { size } = await stat(file);
  return file.startsWith(root + sep) ? { file, size } : null;
}

/** @param {{ file: string, size: number }} found @param {import('node:http').Request} request @param {import('node:http').Response} response */
function send({ file, size }, { headers, method }, response) {
  const [, from, to] = /^bytes=(\d*)-(\d*)$/.exec(headers.range ?? '') ?? [];
  const start = from ? Number(from) : to ? Math.max(0, size - Number(to)) : 0;
  const end = from && to ? Math.min(Number(to), size - 1) : size - 1;
  response.setHeader('Content-Type', TYPES[extname(file)] ?? 'application/octet-stream');
  response.setHeader('Accept-Ranges', 'bytes');
  const isPart = Boolean(from || to);
  if (isPart && start > end) return response.writeHead(416, { 'Content-Range': `bytes */${size}` }).end();
  response.writeHead(isPart ? 206 : 200, { 'Content-Length': end - start + 1, ...isPart ? { 'Content-Range': `bytes ${start}-${end}/${size}` } : {} });
  if (method === 'HEAD' || start > end) return response.end();
  return createReadStream(file, { start, end }).on('error', () => response.destroy()).pipe(response);
}

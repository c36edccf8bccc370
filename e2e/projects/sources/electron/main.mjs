import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { app, BrowserWindow, protocol } from 'electron';

const FOLDER = join(import.meta.dirname, 'page'); // the page, the model, and the package's dist/
const TYPES = {
  '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm', '.json': 'application/json',
};
const HEADERS = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };

protocol.registerSchemesAsPrivileged([
  { scheme: 'app', privileges: { standard: true, secure: true, supportFetchAPI: true, stream: true } },
]);

async function answer(request) {
  const path = normalize(decodeURIComponent(new URL(request.url).pathname)); // has no .. left
  try {
    const body = await readFile(join(FOLDER, path === '/' ? 'index.html' : path));
    return new Response(body, { headers: { ...HEADERS, 'Content-Type': TYPES[extname(path)] ?? (path === '/' ? 'text/html' : 'application/octet-stream') } });
  } catch {
    return new Response(null, { status: 404 });
  }
}

await app.whenReady();
protocol.handle('app', answer);
const window = new BrowserWindow({ width: 800, height: 600 });
await window.loadURL('app://app/');

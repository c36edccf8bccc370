// Where the engine's files are. Each `new URL('./name', import.meta.url)` is a pattern bundlers know: they copy the
// file and put its final address here. The builds for <script> and require() put the script's own address for
// import.meta.url (scripts/build_web.mjs).

/** @typedef {{ worker: string, asm: string, wasm: string, stdlib: string, engine: string }} AssetUrls */

/** @type {Record<keyof AssetUrls, string>} */
const NAMES = {
  worker: 'worker.mjs', asm: 'pyodide.asm.mjs', wasm: 'pyodide.asm.wasm', stdlib: 'python_stdlib.zip',
  engine: 'engine.zip',
};

/**
 * Addresses of all files, or of those under `prefix` (env.wasm.wasmPaths as a string).
 * @param {string} [prefix]
 * @returns {AssetUrls}
 */
export function assetUrls(prefix) {
  if (prefix) {
    const base = new URL(prefix.endsWith('/') ? prefix : `${prefix}/`, globalThis.location?.href);
    const entries = Object.entries(NAMES).map(([key, name]) => [key, new URL(name, base).href]);
    return Object.fromEntries(entries);
  }
  return {
    worker: new URL('./worker.mjs', import.meta.url).href,
    asm: new URL('./pyodide.asm.mjs', import.meta.url).href,
    wasm: new URL('./pyodide.asm.wasm', import.meta.url).href,
    stdlib: new URL('./python_stdlib.zip', import.meta.url).href,
    engine: new URL('./engine.zip', import.meta.url).href,
  };
}

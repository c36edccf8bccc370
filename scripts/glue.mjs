// Emscripten's JavaScript takes a name for each export of Pyodide's WebAssembly; those that nothing uses are taken out.

const TAKEN = /(\w+)=Module\["\w+"\]=wasmExports\["\w+"\](?:\.value>>>0)?;/g; // _a=Module["_a"]=wasmExports["a"];
const DECLARED = /\bvar \w+(?:,\w+){999,}/; // var _a,_b,…
const EXPORT = /wasmExports(?:\["(\w+)"\]|\.(\w+))/g;

/**
 * @param {string} source of pyodide.asm.mjs
 * @param {string} others other JavaScript that uses it
 * @returns {{ code: string, exports: Set<string> }} what is left, and the exports that it mentions
 */
export function trimmed(source, others) {
  const rest = source.replaceAll(TAKEN, '').replace(DECLARED, '') + others;
  const words = new Set(rest.match(/[\w$]+/g));
  const quoted = new Set(rest.match(/(["'])\w+\1/g)?.map((text) => `_${text.slice(1, -1)}`)); // for ccall
  const isUsed = (/** @type {string} */ name) => words.has(name) || quoted.has(name);
  const unused = new Set([...source.matchAll(TAKEN)].map(([, name]) => name).filter((name) => !isUsed(name)));
  if (unused.size < 1000) throw new Error(`${unused.size} exports of Pyodide are not used: its JavaScript has another form`);
  const code = source
    .replaceAll(TAKEN, (text, name) => (unused.has(name) ? '' : text))
    .replace(DECLARED, (list) => `var ${list.slice(4).split(',').filter((name) => !unused.has(name)).join(',')}`);
  return { code, exports: new Set([...code.matchAll(EXPORT)].map(([, quotes, dot]) => quotes ?? dot)) };
}

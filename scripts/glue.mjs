// Emscripten's JavaScript takes a name for each export of Pyodide's WebAssembly; those that nothing uses are taken out, and
// what only prepares for libraries that are loaded later: the engine loads none, and its interpreter has not their exports.

const TAKEN = /(\w+)=Module\["\w+"\]=wasmExports\["\w+"\](?:\.value>>>0)?;/g; // _a=Module["_a"]=wasmExports["a"];
const DECLARED = /\bvar \w+(?:,\w+){999,}/; // var _a,_b,…
const EXPORT = /wasmExports(?:\["(\w+)"\]|\.(\w+))/g;

/** Some 50 ms of a start: what is there, and what comes in its place. @type {[string, string][]} */
const FOR_LIBRARIES = [
  // of all functions in the table which is which; those that are asked for are JavaScript's, which are not in it
  ['functionsInTableMap=new WeakMap;updateTableMap(0,wasmTable.length)', 'functionsInTableMap=new WeakMap'],
  // an entry for each export; the interpreter itself imports no entry of its own exports
  ['if(isInternalSym(symName)){continue}var value=exports[symName]', 'if(isInternalSym(symName)||!GOT[symName]){continue}var value=exports[symName]'],
  // addresses of 274 functions of OpenGL, each compiled on its own
  ['if(entry.value==-1){var value=', 'if(symName.startsWith("emscripten_gl")){entry.value=0;continue}if(entry.value==-1){var value='],
];

/** @param {string} code @param {[string, string]} change */
function changed(code, [from, to]) {
  if (code.split(from).length !== 2) throw new Error(`Pyodide's JavaScript has another form: ${from}`);
  return code.replace(from, to);
}

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
  return { code: FOR_LIBRARIES.reduce(changed, code), exports: new Set([...code.matchAll(EXPORT)].map(([, quotes, dot]) => quotes ?? dot)) };
}

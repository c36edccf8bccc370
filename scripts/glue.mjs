// Trims Pyodide's JavaScript: removes names of unused WebAssembly exports, and code for libraries that are loaded
// later, because the engine loads none. Its loader loses what only Node.js, a missing address or a mounted folder need.

import { withoutUnused } from './unused_glue.mjs';

const TAKEN = /(\w+)=Module\["\w+"\]=wasmExports\["\w+"\](?:\.value>>>0)?;/g; // _a=Module["_a"]=wasmExports["a"];
const DECLARED = /\bvar \w+(?:,\w+){999,}/; // var _a,_b,…
const EXPORT = /wasmExports(?:\["(\w+)"\]|\.(\w+))/g;

/** OpenGL functions, whose addresses the interpreter requests but which it never calls. */
export const NO_ADDRESS = /^emscripten_gl/;

/** Replacements that save about 50 ms of a start: code and its replacement. @type {[string, string][]} */
const FOR_LIBRARIES = [
  // an inventory of the function table; only JavaScript's functions are looked up, which are not in it
  ['functionsInTableMap=new WeakMap;updateTableMap(0,wasmTable.length)', 'functionsInTableMap=new WeakMap'],
  // a table entry for each export; the interpreter imports no entries of its own exports
  ['if(isInternalSym(symName)){continue}var value=exports[symName]', 'if(isInternalSym(symName)||!GOT[symName]){continue}var value=exports[symName]'],
  // the addresses of 274 OpenGL functions, all of which are removed
  ['if(entry.value==-1){var value=', `if(${NO_ADDRESS}.test(symName)){entry.value=0;continue}if(entry.value==-1){var value=`],
];

/** The only uses of code for windows, which a worker does not have. @type {[string, string][]} */
const FOR_WINDOWS = [
  ['if(typeof Browser!="undefined")Browser.init();', ''], // for preloaded pictures and sounds
  ['registerPostMainLoop(()=>SDL.audio?.queueNewAudioData?.());', ''],
  ['for SDL library', 'for its library'], // the text of a warning, in which a name counts as a use
];

/** The memory on which streams of Node.js wait. Some browsers refuse shared memory, and then the module would not load; without it a
 * wait ends at once. @type {[string, string][]} */
const SHARED = [['new Int32Array(new WebAssembly.Memory({shared:!0,initial:1,maximum:1}).buffer)', 'null']];

/** Python source that a start would parse and compile with cold code, and calls that replace it. @type {[string,
 * string][]} */
const WITHOUT_SOURCE = [
  ['let[r,n]=API.rawRun("import _pyodide_core")', 'let[r,n]=t?[0]:API.rawRun("import _pyodide_core")'], // the restored memory contains it
  ['API._pyodide._base.eval_code("{}")', 'API._pyodide._base.builtins.dict()'],
  ['API.runPythonInternal("import importlib; importlib")', 'API._pyodide._base.import_module("importlib")'],
  ['API.runPythonInternal("import __main__; __main__.__dict__")', 'o("__main__").__dict__'],
  ['API.runPythonInternal("import builtins; builtins.__dict__")', 'o("builtins").__dict__'],
];

/** Puts the one function that contains everything in parentheses: V8 then expects a call at once and parses it once.
 * @type {[string, string][]} */
const AT_ONCE = [
  ['async function _createPyodideModule(', 'const _createPyodideModule=(async function('],
  ['return moduleRtn}export default', 'return moduleRtn});export default'],
];

/** The loader's parser of stack traces, which finds its own address if `indexURL` is missing. */
const STACK_PARSER = /function \w+\(e\)\{return!isNaN\(.*"ErrorStackParser"\);var \w+=new \w+;var \w+=\w+;/s;

/** Code of the loader, and its replacement in a worker of a browser. @type {[string, string][]} */
const IN_WORKERS = [
  ['let t=e.indexURL||await J();', 'let t=e.indexURL;'],
  ['be(e.env),z,...', 'be(e.env),...'], // a file system over a folder of the visitor
];

/** The trimmed source of pyodide.mjs. What is unused then, the bundler drops. @param {string} source */
export function trimmedLoader(source) {
  if (!STACK_PARSER.test(source)) throw new Error("Pyodide's loader has another form");
  return IN_WORKERS.reduce(changed, source.replace(STACK_PARSER, ''))
    .replace(/\bo\((\w+),"[\w$ ]+"\)/g, '$1') // statements that name functions, which count as uses
    .replace(/\bf\.IN_(NODE|NODE_COMMONJS|NODE_ESM|SHELL|BUN|DENO)\b/g, 'false');
}

/** @param {string} code @param {[string, string]} change */
function changed(code, [from, to]) {
  if (code.split(from).length !== 2) throw new Error(`Pyodide's JavaScript has another form: ${from}`);
  return code.replace(from, to);
}

/**
 * @param {string} source of pyodide.asm.mjs
 * @param {string} others other JavaScript that uses it
 * @param {Set<string>} imported what Pyodide's WebAssembly imports
 * @returns {{ code: string, exports: Set<string> }} what is left, and the exports that it mentions
 */
export function trimmed(source, others, imported) {
  const { code: used, cut } = withoutUnused([...FOR_LIBRARIES, ...FOR_WINDOWS, ...SHARED, ...WITHOUT_SOURCE].reduce(changed, source), others, imported);
  const rest = used.replaceAll(TAKEN, '').replace(DECLARED, '') + others;
  const words = new Set(rest.match(/[\w$]+/g));
  const quoted = new Set(rest.match(/(["'])\w+\1/g)?.map((text) => `_${text.slice(1, -1)}`)); // for ccall
  const isUsed = (/** @type {string} */ name) => words.has(name) || quoted.has(name);
  const unused = new Set([...used.matchAll(TAKEN)].map(([, name]) => name).filter((name) => !isUsed(name)));
  if (unused.size < 1000 || cut < 3000) throw new Error(`${unused.size} exports and ${cut} statements of Pyodide's JavaScript are not used: it has another form`);
  const code = AT_ONCE.reduce(changed, used)
    .replaceAll(TAKEN, (text, name) => (unused.has(name) ? '' : text))
    .replace(DECLARED, (list) => `var ${list.slice(4).split(',').filter((name) => !unused.has(name)).join(',')}`);
  return { code, exports: new Set([...code.matchAll(EXPORT)].map(([, quotes, dot]) => quotes ?? dot)) };
}

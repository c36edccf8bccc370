// The interpreter's WebAssembly is split: the first half has the functions that the engine uses. The second half is fetched and
// joined when one of its functions is first called (scripts/split_wasm.py, docs/design/startup.md#splitting-the-interpreter).

const SHARED = 'split '; // prefix of the first half's exports that the second half imports
/**
 * A module that exports its imported function as `load`, because tables take only WebAssembly functions, and an empty function as
 * `nothing`.
 */
const LOADER = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, // "\0asm", version 1
  1, 4, 1, 96, 0, 0, // types: () → ()
  2, 5, 1, 0, 0, 0, 0, // import "" "": function 0
  3, 2, 1, 0, // function 1
  7, 18, 2, 4, 108, 111, 97, 100, 0, 0, 7, 110, 111, 116, 104, 105, 110, 103, 0, 1, // exports "load": 0, "nothing": 1
  10, 4, 1, 2, 0, 11, // body of function 1
);

/**
 * The first half without its exports for the second half. It loads the second half on demand.
 * @param {{ instance: WebAssembly.Instance, module: WebAssembly.Module }} made
 * @param {WebAssembly.Imports} imports
 * @param {() => BufferSource} second fetches the bytes of the second half
 * @param {(cause: unknown) => Error} broken makes the error if the second half cannot be loaded: the interpreter is useless then
 */
export function joinOnDemand({ instance, module }, imports, second, broken) {
  const shared = Object.entries(instance.exports).filter(([name]) => name.startsWith(SHARED));
  const own = Object.entries(instance.exports).filter(([name]) => !name.startsWith(SHARED));
  const slots = /** @type {WebAssembly.Table} */ (shared.map(([, value]) => value).findLast((value) => value instanceof WebAssembly.Table));
  if (!slots) return { instance, module }; // Pyodide's own file, which is not split
  const join = () => {
    try {
      new WebAssembly.Instance(new WebAssembly.Module(second()), { ...imports, split: Object.fromEntries(shared) });
      if (!slots.get(slots.length - 1)) throw new Error('it is of another build');
      slots.set(0, loader.nothing);
    } catch (cause) {
      throw broken(cause);
    }
  };
  const loader = new WebAssembly.Instance(new WebAssembly.Module(LOADER), { '': { '': join } }).exports;
  slots.set(0, loader.load);
  return { instance: /** @type {WebAssembly.Instance} */ ({ exports: Object.fromEntries(own) }), module };
}

/**
 * Makes the browser optimise the first half's hot functions before Python runs (scripts/warm_wasm.py,
 * docs/design/startup.md#warming-up-the-interpreter). Optimised code belongs to the module, so another instance of it runs that code, too.
 * @param {WebAssembly.Module} module
 */
export function warmUp(module) {
  /** @type {Record<string, WebAssembly.ModuleImports>} */
  const imports = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    (imports[from] ??= {})[name] = kind === 'global' ? new WebAssembly.Global({ value: 'i32', mutable: true }, 0) : () => 0;
  }
  try {
    /** @type {(() => void) | undefined} */ (new WebAssembly.Instance(module, imports).exports[`${SHARED}warm up`])?.();
  } catch {
    // if memory for another instance is lacking, or if this is Pyodide's own file, the browser optimises the functions later
  }
}

/**
 * Makes the browser optimise more functions: from 1 MB on Chromium caches a file's optimised code for later visits.
 * @param {WebAssembly.Instance} instance
 */
export const warmLater = ({ exports }) => /** @type {(() => void) | undefined} */ (exports[`${SHARED}later`])?.();

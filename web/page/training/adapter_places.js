// Where the tensors of an adapter go in the inputs of a Program, which has no Python to tell it.
// Twin of pyruntime/training/adapters/adapter_inputs.py.

import { InvalidInput, InvalidModel } from '../../common/errors.js';

/** @import { AdapterEntry, AdapterFed, AdapterPlaces, AdaptersInfo, ValueInfo } from '../../common/protocol.js' */
/** @import { Adapter } from './adapter_file.js' */
/** Of a module the names of A and B, and the factor of their product. @typedef {{ module: string, a: string, b: string, scale: number }} Pair */

const PAIR = /^(.*?)[._]?lora[_.](A|B|down|up)(?:\.(?!weight$)\w+)?(?:\.weight)?$/;
const TAIL = /^(?:fused)?(?:matmul(?:nbits|bnb4)?|gemm|weight|kernel|qweight)(?:[_:][\w:]*)?$/i;
const WRAPPERS = ['base_model', 'model', 'module', '_orig_mod'];
/** @type {Record<string, string>} */
const SAME = { self_attn: 'attn', self_attention: 'attn', attention: 'attn' };

/**
 * @param {AdaptersInfo} info @param {ValueInfo[]} inputs of the Program @param {string} name of the adapter, for messages
 * @param {Adapter} adapter @returns {AdapterPlaces} Errors: InvalidInput for what does not fit
 */
export function placesIn(info, inputs, name, adapter) {
  const shapes = Object.fromEntries(inputs.map((input) => [input.name, input.shape ?? []]));
  const names = Object.keys(adapter.tensors);
  if (names.every((tensor) => tensor in shapes)) {
    return { entries: [], fed: names.map((tensor) => ({ input: tensor, tensor, axis: rankAxis(tensor), is_transposed: false, scale: 1 })) };
  }
  /** @type {AdapterPlaces} */
  const places = { entries: [], fed: [] };
  for (const pair of pairsOf(adapter)) {
    const key = plainName(pair.module);
    const slot = own(info.slots, key);
    const rows = own(info.modules, key);
    if (slot) places.fed.push(...slot.map((input, n) => fedTo(input, n, pair, adapter, shapes)));
    else if (rows) places.entries.push(...rows.map((one) => entry(one, key, name, pair, adapter)));
    else {
      const known = [...Object.keys(info.modules), ...Object.keys(info.slots)].slice(0, 6).join(', ') || 'none';
      const hint = `export the Program from a session with adapters of such modules; it has places for ${known}`;
      throw new InvalidInput(`the Program has no place for "${pair.module}" of adapter "${name}"`, { hint });
    }
  }
  return places;
}

/** Refuses places outside of the inputs. @param {AdaptersInfo} info @param {ValueInfo[]} inputs of the Program */
export function checkInfo(info, inputs) {
  try {
    if (areInside(info, inputs)) return;
  } catch { /* a table is none */ }
  throw new InvalidModel('the program is damaged: its places for adapters do not fit its inputs', { hint: 'export it again' });
}

/** @param {AdaptersInfo} info @param {ValueInfo[]} inputs */
function areInside({ rowsA, rowsB, modules, slots, defaults }, inputs) {
  const fits = (/** @type {number[]} */ [firstA, a, firstB, b]) => (
    [firstA, a, firstB, b].every((x) => Number.isSafeInteger(x) && x >= 0) && firstA + a <= rowsA && firstB + b <= rowsB);
  const sizeOf = (/** @type {string} */ name) => inputs.find((input) => input.name === name)?.shape?.[0] ?? 0;
  const named = [...Object.values(slots).flat(), ...Object.keys(defaults)];
  return Object.values(modules).flat().every(fits) && sizeOf('adapters:A') === rowsA && sizeOf('adapters:B') === rowsB
    && named.every((name) => inputs.some((input) => input.name === name));
}

/** @template T @param {Record<string, T>} table @param {string} name */
const own = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined);

/** @param {Adapter} adapter @returns {Pair[]} */
function pairsOf({ tensors, config }) {
  /** @type {Map<string, { a?: string, b?: string }>} */
  const found = new Map();
  for (const name of Object.keys(tensors)) {
    const [, module, part] = PAIR.exec(name) ?? [];
    if (module === undefined) throw new InvalidInput(`"${name}" is no matrix of a LoRA`, { hint: 'merge what is no pair of matrices into the model' });
    const pair = found.get(module) ?? {};
    pair[part === 'A' || part === 'down' ? 'a' : 'b'] = name;
    found.set(module, pair);
  }
  return [...found].map(([module, { a, b }]) => {
    if (!a || !b) throw new InvalidInput(`of "${module}" the adapter has only ${a ?? b}`, { hint: 'it needs lora_A and lora_B' });
    const [first, second] = [tensors[a].shape, tensors[b].shape];
    if (first.length !== 2 || second.length !== 2 || first[0] !== second[1] && first[1] !== second[0]) {
      throw new InvalidInput(`"${a}" [${first}] and "${b}" [${second}] are no two matrices`);
    }
    return { module, a, b, scale: scaleOf(config, module, first[0] === second[1] ? first[0] : first[1]) };
  });
}

/** As PEFT computes it: lora_alpha over the rank, or over its root. @param {Record<string, any>} config @param {string} module @param {number} rank */
function scaleOf(config, module, rank) {
  if (!Object.keys(config).length) return 1;
  if ((config.peft_type ?? 'LORA') !== 'LORA' || config.use_dora) {
    throw new InvalidInput(`an adapter of kind ${config.use_dora ? 'DoRA' : config.peft_type} is not supported`, { hint: 'LoRA is' });
  }
  const pattern = Object.keys(config.alpha_pattern ?? {}).find((one) => endsWith(module, one));
  const alpha = pattern === undefined ? config.lora_alpha ?? config.alpha ?? rank : config.alpha_pattern[pattern];
  if (typeof alpha !== 'number' || !Number.isFinite(alpha)) throw new InvalidInput(`the adapter's lora_alpha is ${alpha}, not a number`);
  return alpha / (config.use_rslora ? Math.sqrt(rank) : Math.max(rank, 1));
}

/** Whether a module's name, or its last parts, are these. @param {string} module @param {string} pattern of `alpha_pattern` */
function endsWith(module, pattern) {
  const plain = pattern.replace(/\\\./g, '.').replace(/^\^|\$$/g, '');
  if (!/^[\w.]+$/.test(plain)) { // a regular expression from a file can take a browser's matcher for ever
    throw new InvalidInput(`alpha_pattern "${pattern}" is a regular expression`, { hint: 'open the ONNX model, or name modules' });
  }
  return module === plain || !pattern.startsWith('^') && module.endsWith(`.${plain}`);
}

/** The name of a module by which files and models are compared. @param {string} module */
function plainName(module) {
  let parts = module.split(/[/.]/).filter(Boolean);
  while (parts.length > 1 && TAIL.test(/** @type {string} */ (parts.at(-1)))) parts.pop();
  while (parts.length > 1 && WRAPPERS.includes(parts[0])) parts = parts.slice(1);
  return parts.map((part) => (Object.hasOwn(SAME, part) ? SAME[part] : part)).join('.');
}

/** @param {string} tensor */
function rankAxis(tensor) {
  if (tensor.includes('lora_A')) return 1;
  return tensor.includes('lora_B') ? 0 : -1;
}

/**
 * A (fan_in, rank) or B (rank, fan_out) as an input of the model.
 * @param {string} input @param {number} n 0 for A, 1 for B @param {Pair} pair @param {Adapter} adapter
 * @param {Record<string, (string | number | null)[]>} shapes @returns {AdapterFed}
 */
function fedTo(input, n, { a, b, scale }, { tensors }, shapes) {
  const tensor = n ? b : a;
  const { shape } = tensors[tensor];
  const wanted = shapes[input][n];
  const isFixed = typeof wanted === 'number';
  if (isFixed && !shape.includes(wanted)) throw new InvalidInput(`"${tensor}" [${shape}] does not fit input "${input}" [${shapes[input]}]`);
  return { input, tensor, axis: 1 - n, is_transposed: isFixed && shape[n] !== wanted, scale: n ? scale : 1 };
}

/** @param {number[]} rows @param {string} key @param {string} name @param {Pair} pair @param {Adapter} adapter @returns {AdapterEntry} */
function entry([firstA, rowsA, firstB, rowsB], key, name, { a, b, scale }, { tensors }) {
  const [first, second] = [tensors[a].shape, tensors[b].shape];
  const isPeft = first[1] === rowsA && second[0] === rowsB && first[0] === second[1];
  if (!isPeft && (first[0] !== rowsA || second[1] !== rowsB || first[1] !== second[0])) {
    throw new InvalidInput(`adapter "${name}" does not fit "${key}": it is ${rowsA} to ${rowsB}, "${a}" is [${first}], "${b}" is [${second}]`);
  }
  return { a, b, first_a: firstA, first_b: firstB, rows_a: rowsA, rows_b: rowsB, rank: first[isPeft ? 0 : 1], is_peft: isPeft, scale };
}

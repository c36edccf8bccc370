// Losses and optimisers that are JavaScript functions: called once with traced tensors, whose methods record nodes. Twin of
// pyruntime/training/graph/traced_functions.py; both write the traces that pyruntime/runtime/traced_vocabulary.py describes.

import { InvalidInput } from '../../common/errors.js';
import { ELEMENTWISE, LISTS, MOST_RANK, SHAPED, TENSORS, methods, misuse } from '../../runtime/traced_vocabulary.js';

/** @typedef {[name: string, operands: unknown[], settings: Record<string, unknown>]} Node */
/** A traced tensor: its methods are those of the vocabulary in camel case. @typedef {{ [name: string]: (...given: unknown[]) => Traced }} Traced */

const camel = (/** @type {string} */ name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
const NAMES = new Map(methods().map((name) => [camel(name), name]));
/** Nodes and place of each traced tensor. @type {WeakMap<object, { nodes: Node[], place: number }>} */
const PLACES = new WeakMap();

/** @param {Node[]} nodes @param {Node} node @param {number} [rank] of weights and gradients @returns {Traced} */
function added(nodes, node, rank) {
  const place = nodes.push(node) - 1;
  const tensor = new Proxy({}, {
    get(_, key) {
      if (key === 'then') return undefined;
      if (key === Symbol.toPrimitive || key === Symbol.iterator || key === 'valueOf' || key === 'toString') return noValue;
      if (key === 'rank' && rank !== undefined) return rank;
      const name = NAMES.get(String(key));
      if (name) return (/** @type {unknown[]} */ ...given) => called(nodes, place, name, given);
      throw new InvalidInput(`a traced tensor has no method "${String(key)}"`, { hint: `known: ${[...NAMES.keys()].join(', ')}` });
    },
  });
  PLACES.set(tensor, { nodes, place });
  return tensor;
}

function noValue() {
  throw new InvalidInput('a traced tensor has no value: the function is called once, before there are data', { hint: 'methods compute: a.add(b); a.where(b, c) chooses for each element' });
}

/** @param {Node[]} nodes @param {number} place @param {string} name of the vocabulary @param {unknown[]} given */
function called(nodes, place, name, given) {
  const known = SHAPED.get(name) ?? [];
  const named = Object.fromEntries(known.map((key, n) => [key, given[n]]).filter(([, value]) => (value ?? null) !== null));
  const wrong = misuse(name, Object.keys(named), given.length);
  if (wrong || SHAPED.has(name) && given.length > known.length) throw new InvalidInput(wrong || `${name} takes ${known.length} arguments, not ${given.length}`);
  const others = ELEMENTWISE.has(name) ? given : TENSORS.filter((key) => key in named).map((key) => named[key]);
  const settings = Object.entries(named).filter(([key]) => !TENSORS.includes(key)).map(([key, value]) => [key, setting(name, key, value)]);
  return added(nodes, [name, [String(place), ...others.map((x) => operand(nodes, x))], Object.fromEntries(settings)]);
}

/** Errors: InvalidInput for what is no traced tensor of this function, number or list of numbers. @param {Node[]} nodes @param {unknown} x */
function operand(nodes, x) {
  const known = PLACES.get(Object(x));
  if (known && known.nodes !== nodes) throw new InvalidInput('a traced tensor is of another function', { hint: 'use what this function is called with' });
  if (known) return String(known.place);
  const isList = Array.isArray(x) || ArrayBuffer.isView(x);
  const numbers = isList ? Array.from(/** @type {ArrayLike<number>} */ (x)) : [x];
  if (!numbers.every(Number.isFinite)) throw new InvalidInput(`a traced function cannot compute with ${x}`, { hint: 'tensors, finite numbers, or lists' });
  return isList ? numbers : x;
}

/** @param {string} method @param {string} name @param {unknown} value */
function setting(method, name, value) {
  if (name === 'keepdims' && typeof value === 'boolean') return value;
  const found = Array.isArray(value) && LISTS.includes(name) ? value : [value];
  if (name === 'keepdims' || !found.every(Number.isInteger)) throw new InvalidInput(`${name} of ${method} cannot be ${value}`);
  return LISTS.includes(name) ? found : found[0];
}

/** Tensors by name. @param {Node[]} nodes @param {string} kind @param {Map<string, unknown>} [fresh] those that the function has set */
function leaves(nodes, kind, fresh) {
  /** @type {Map<string, Traced>} */
  const found = new Map();
  const leaf = (/** @type {string} */ name) => {
    if (!found.has(name)) found.set(name, added(nodes, [kind, [], { name }]));
    return /** @type {Traced} */ (found.get(name));
  };
  return new Proxy({}, {
    get: (_, key) => (kind === 'number' && key === 'correction' ? (/** @type {number} */ beta) => correction(leaf('number'), beta)
      : fresh?.has(String(key)) ? fresh.get(String(key)) : leaf(String(key))),
    set(_, key, value) {
      if (!fresh) throw new InvalidInput(`"${String(key)}" cannot be set`, { hint: 'an optimizer sets values of its state' });
      fresh.set(String(key), value);
      return true;
    },
  });
}

/** 1 - beta to the power of the step's number, also where beta is almost 1. @param {Traced} number @param {number} beta */
function correction(number, beta) {
  if (!(beta > 0 && beta < 1)) throw new InvalidInput(`correction cannot be of ${beta}`, { hint: 'a number between 0 and 1' });
  const x = number.mul(Math.log(beta));
  const series = [6, 5, 4, 3, 2].reduce((/** @type {Traced | number} */ sum, k) => x.mul(sum).div(k).add(1), 1); // of (exp(x) - 1) / x
  return x.gt(-0.25).where(x.mul(series).neg(), x.exp().neg().add(1));
}

/** The trace of a function that returned. @param {Node[]} nodes @param {[string, unknown][]} results by name, the first of which is what it returned @param {string} what */
function ended(nodes, results, what) {
  for (const [name, x] of results) {
    if (!PLACES.has(Object(x))) throw new InvalidInput(name ? `"${name}" is set to ${x}` : `${what} returned ${x}`, { hint: 'a traced tensor' });
  }
  nodes.push(['return', results.map(([, x]) => operand(nodes, x)), { names: results.map(([name]) => name) }]);
  return nodes;
}

/** @param {Function} loss (outputs, labels) -> a single number */
function traceLoss(loss) {
  /** @type {Node[]} */
  const nodes = [];
  return ended(nodes, [['', loss(leaves(nodes, 'output'), leaves(nodes, 'label'))]], 'the loss');
}

/** A trace for each rank of a weight. @param {Function} update (weight, gradient, state, step) -> the new weight */
function traceUpdate(update) {
  return Array.from({ length: MOST_RANK + 1 }, (_, rank) => {
    /** @type {Node[]} */
    const nodes = [];
    /** @type {Map<string, unknown>} */
    const fresh = new Map();
    const [weight, gradient] = ['weight', 'gradient'].map((kind) => added(nodes, [kind, [], { name: '' }], rank));
    const result = update(weight, gradient, leaves(nodes, 'state', fresh), leaves(nodes, 'number'));
    return ended(nodes, [['', result], ...fresh], 'the optimizer');
  });
}

/** Options in which functions are replaced by their traces. @param {Record<string, unknown>} options */
export function traced({ ...options }) {
  const { loss, optimizer } = options;
  if (loss) options.loss = Array.isArray(loss) ? loss.map(withTrace) : withTrace(loss);
  const own = typeof optimizer === 'function' ? { update: optimizer } : /** @type {{ function?: { update?: unknown } } | undefined} */ (optimizer)?.function;
  if (typeof own?.update === 'function') options.optimizer = { function: { ...own, update: traceUpdate(own.update) } };
  return options;
}

/** @param {unknown} loss */
function withTrace(loss) {
  if (typeof loss === 'function') return { function: traceLoss(loss) };
  const given = /** @type {{ function?: unknown } | null} */ (loss)?.function;
  return typeof given === 'function' ? { .../** @type {object} */ (loss), function: traceLoss(given) } : loss;
}

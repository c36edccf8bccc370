// Checks a provider's module and its answers (web/providers.d.ts).

import { InvalidInput } from '../../common/errors.js';
import { described, isPromise } from '../../run/array_parts.js';

/** A kind of value. @typedef {{ wants: string, takes: (value: unknown) => boolean }} Kind */
/** A question. missing: the answer of a provider without this member. @typedef {Kind & { missing?: () => unknown }} Question */
/** @typedef {Record<string, any>} Instance a provider of one session */
/** @typedef {{ name: string, options: Record<string, unknown>, takesParts: boolean, factory: Instance }} Registered */

const isFunction = (/** @type {unknown} */ value) => typeof value === 'function';
const isText = (/** @type {unknown} */ value) => typeof value === 'string';
const isBoolean = (/** @type {unknown} */ value) => typeof value === 'boolean';
const isRecord = (/** @type {unknown} */ value) => typeof value === 'object' && value !== null && !Array.isArray(value);

/** What compilation asks, and the answers that it takes. @type {Record<string, Question>} */
export const QUESTIONS = {
  supports: { wants: 'a text', takes: isText },
  supportsNode: { wants: 'true or false', takes: isBoolean, missing: () => false },
  cost: { wants: 'a number or null', takes: (value) => value === null || Number.isFinite(value), missing: () => null },
  reads: { wants: 'true or false', takes: isBoolean, missing: () => false },
  fuses: { wants: 'true or false', takes: isBoolean, missing: () => false },
  packs: { wants: 'a map or null', takes: (value) => value === null || isRecord(value), missing: () => null },
  compile: { wants: 'a function', takes: isFunction },
};

const callable = { wants: 'a function', takes: isFunction };
/** All members of a module's default export. @type {Record<string, Kind>} */
const MEMBERS = {
  name: { wants: 'a text', takes: (value) => isText(value) && value !== '' },
  takesParts: { wants: 'true or false', takes: isBoolean },
  options: { wants: 'an object', takes: isRecord },
  ...Object.fromEntries([...Object.keys(QUESTIONS), 'open', 'runStart', 'runEnd', 'close'].map((name) => [name, callable])),
};

/** @param {string} address @param {{ default?: unknown }} module @returns {Registered} */
export function registered(address, { default: given }) {
  const refused = (/** @type {string} */ text) => new InvalidInput(`${address} is no provider: ${text}`, { hint: 'a provider has a name, supports and compile' });
  if (typeof given !== 'object' || given === null) throw refused(`it exports ${given === undefined ? 'no default' : described(given)}`);
  const factory = /** @type {Instance} */ (given);
  const wrong = faultsOf(factory, 'name' in factory ? ['supports', 'compile'] : ['name', 'supports', 'compile']);
  if (wrong) throw refused(wrong);
  const { name, options = {}, takesParts = false } = factory;
  try {
    return { name, options: JSON.parse(JSON.stringify(options)), takesParts, factory };
  } catch (error) {
    throw refused(`options cannot be JSON: ${error}`);
  }
}

/** What is wrong with a provider, or "". @param {Instance} instance @param {string[]} needed names of members */
export function faultsOf(instance, needed) {
  const missing = needed.filter((name) => instance[name] === undefined);
  if (missing.length) return `it lacks ${missing.join(', ')}`;
  const wrong = Object.keys(MEMBERS).find((name) => instance[name] !== undefined && !MEMBERS[name].takes(instance[name]));
  return wrong ? `${wrong} cannot be ${described(instance[wrong])}, but must be ${MEMBERS[wrong].wants}` : '';
}

/** The answer of a provider to a question. @param {Instance} instance @param {string} member @param {unknown[]} given */
export function answerOf(instance, member, given) {
  const { wants, takes, missing } = QUESTIONS[member];
  const answer = instance[member] || !missing ? instance[member](...given) : missing();
  const isLate = isPromise(answer);
  if (!isLate && takes(answer)) return answer;
  if (isLate) Promise.resolve(answer).catch(() => {}); // the page gets the error below
  const late = isLate ? ': questions need their answers at once' : '';
  throw new TypeError(`${member} returned ${described(answer)}, not ${wants}${late}`);
}

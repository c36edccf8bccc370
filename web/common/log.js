// Messages of the engine, by severity: all of the page, its worker and its threads go to the console through here.

/** The field's names, in onnxruntime's order: options name them by their numbers. */
export const SEVERITIES = /** @type {const} */ (['verbose', 'info', 'warning', 'error', 'fatal']);
const PRINT = /** @type {const} */ (['debug', 'info', 'warn', 'error', 'error']);

/** @typedef {{ least?: number, id?: string }} Said what a session or a run says of its messages: the least severity, a name */

/** Of messages that nobody says anything of. In pages env.logLevel tells the severity. */
export const logging = {
  least: () => 2,
  /** @type {Said} of what runs now (`during`) */
  said: {},
};

/**
 * Whether it was told. A function makes the message only if it is.
 * @param {typeof SEVERITIES[number]} severity @param {string | (() => string)} message @param {Said} [said]
 */
export function log(severity, message, { least, id } = logging.said) {
  const level = SEVERITIES.indexOf(severity);
  if (level < (least ?? logging.least())) return false;
  console[PRINT[level]](`pyruntime${id ? ` ${id}` : ''}: ${typeof message === 'string' ? message : message()}`);
  return true;
}

/** @param {string} message @param {Said} [said] */
export const warn = (message, said) => log('warning', message, said);

/** @type {Set<string>} */
const told = new Set();

/** @param {string} message @param {Said} [said] @param {string} [key] of messages that say the same */
export function warnOnce(message, said, key = message) {
  if (!told.has(key) && warn(message, said)) told.add(key);
}

/** What Python says meanwhile is of this session. @template T @param {Said | undefined} said @param {() => T} action @returns {T} */
export function during(said, action) {
  const before = logging.said;
  logging.said = said ?? {};
  try {
    return action();
  } finally {
    logging.said = before;
  }
}

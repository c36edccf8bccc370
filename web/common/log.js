// Messages of the engine, by severity. The page, its worker and its threads print their messages with this module.

/** onnxruntime's names, in its order: options use their numbers. */
export const SEVERITIES = /** @type {const} */ (['verbose', 'info', 'warning', 'error', 'fatal']);
const PRINT = /** @type {const} */ (['debug', 'info', 'warn', 'error', 'error']);

/**
 * Log options of a session or a run. least: the lowest severity to print; id: a name to print with messages.
 * @typedef {{ least?: number, id?: string }} LogOptions
 */

/** Defaults of all messages. In pages env.logLevel decides `least`. */
export const logging = {
  least: () => 2,
  /** Log options of the session for which code runs (`during`). @type {LogOptions} */
  options: {},
};

/**
 * Prints a message if it is severe enough, and returns whether it is. A message can be a function that makes it.
 * @param {typeof SEVERITIES[number]} severity @param {string | (() => string)} message @param {LogOptions} [options]
 */
export function log(severity, message, { least, id } = logging.options) {
  const level = SEVERITIES.indexOf(severity);
  if (level < (least ?? logging.least())) return false;
  console[PRINT[level]](`pyruntime${id ? ` ${id}` : ''}: ${typeof message === 'string' ? message : message()}`);
  return true;
}

/** @param {string} message @param {LogOptions} [options] */
export const warn = (message, options) => log('warning', message, options);

/** @type {Set<string>} keys of messages */
const printed = new Set();

/** @param {string} message @param {LogOptions} [options] @param {string} [key] only the first message of a key is printed */
export function warnOnce(message, options, key = message) {
  if (!printed.has(key) && warn(message, options)) printed.add(key);
}

/**
 * Runs an action whose messages, Python's among them, use the options of a session.
 * @template T @param {LogOptions | undefined} options @param {() => T} action @returns {T}
 */
export function during(options, action) {
  const before = logging.options;
  logging.options = options ?? {};
  try {
    return action();
  } finally {
    logging.options = before;
  }
}

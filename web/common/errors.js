// The exceptions of pyruntime/errors.py, in JavaScript: an error raised in Python reaches the page with all its parts.
// Twin of pyruntime/errors.py.

/**
 * An error on its way from the worker to the page. `message` excludes node and hint.
 * @typedef {{ type: string, message: string, node: string, hint: string }} ErrorPayload
 */

/** Names that the engine gives to feeds, outputs and dims: callers do not know them, and messages leave them out. */
const HIDDEN = [
  ...['numbers', 'apply', 'result', 'applied', 'loss'].map((name) => `training:${name}`),
  ...['A', 'B', 'rank'].map((name) => `adapters:${name}`),
];

/** Those of the names that callers know. @param {string[]} names */
export const shownNames = (names) => names.filter((name) => !HIDDEN.includes(name));

/** The line of a message that names the documentation's page. */
const SEE = /\nSee \S+/g;

/** The address of the page on all kinds of errors, or "" where the package does not know its files. */
let address = () => '';
/** @param {() => string} get */
export const setErrorPages = (get) => { address = get; };

/**
 * The base class. `message` is "node: detail (hint)" and a line with `help`, the address of the documentation's page on this
 * kind of error. Each part is also a field.
 */
export class PyRuntimeError extends Error {
  /**
   * @param {string} detail
   * @param {{ node?: string | null, hint?: string | null, cause?: unknown } | null} [where]
   */
  constructor(detail, where) {
    const [node, hint, cause] = [where?.node ?? '', where?.hint ?? '', where?.cause]; // a signal's reason may be null
    const own = detail.replace(SEE, ''); // of an error whose message is a part of this one's
    const help = helpOf(new.target.prototype.type);
    const message = `${node ? `${node}: ` : ''}${own}${hint ? ` (${hint})` : ''}${help && `\nSee ${help}`}`;
    super(message, cause === undefined ? undefined : { cause });
    this.detail = own;
    this.node = node;
    this.hint = hint;
  }

  /** The name of the class in Python. Minifiers do not change it. */
  get type() {
    return typeOf(this.constructor);
  }

  /** The address of the documentation's page on this kind of error, or "". */
  get help() {
    return helpOf(this.type);
  }

  /** @override */
  get name() {
    return this.type;
  }
}

/** The bytes are not a valid ONNX model, or cannot be fetched. */
export class InvalidModel extends PyRuntimeError {}
/** An operator, one of its versions, an attribute or a type is not implemented. */
export class UnsupportedOp extends PyRuntimeError {}
/** A gradient passes through a node that has none. The hint names the tensors that need it. */
export class NotDifferentiable extends UnsupportedOp {}
/** The Program for all sizes does not run these; a Program for these alone may. Sessions catch it. */
export class UnsupportedSizes extends UnsupportedOp {
  /** @override */
  get type() {
    return 'UnsupportedOp';
  }
}
/** Shapes or attributes of a node contradict each other. */
export class ShapeError extends PyRuntimeError {}
/** A feed has a wrong name, element type, rank, dimension or value. The session stays usable. */
export class InvalidInput extends PyRuntimeError {}
/** A memory limit would be exceeded. Nothing was allocated. */
export class OutOfMemory extends PyRuntimeError {}
/** An allocator was misused: always a bug of this package. */
export class MemoryFault extends PyRuntimeError {}
/** An unexpected failure of the engine: always a bug of this package. */
export class InternalError extends PyRuntimeError {}
/** The GPU device is lost and cannot be replaced. */
export class DeviceLost extends PyRuntimeError {}
/** The browser has no WebGPU adapter or device. */
export class NoAdapter extends PyRuntimeError {}
/** The session cannot run any more. */
export class SessionFailed extends PyRuntimeError {}
/** A kernel found invalid data during a run, such as an index out of range. */
export class ExecutionError extends PyRuntimeError {}

/** Compilation would take more time or emit more code than the session's options allow. */
export class LimitExceeded extends PyRuntimeError {}
/** The browser's storage lacks space for a file: `needed`, `usage` and `quota` are bytes. */
export class QuotaExceeded extends PyRuntimeError {}
/**
 * The caller stopped the call. If an AbortSignal stopped it, `cause` is the signal's reason, and `name` is the reason's
 * name or else "AbortError", so that code written for `fetch` works. A session whose run was stopped stays usable.
 */
export class Terminated extends PyRuntimeError {
  /** @override */
  get name() {
    if (this.cause === undefined) return super.name;
    const { name } = /** @type {{ name?: unknown }} */ (this.cause ?? {});
    return typeof name === 'string' && name ? name : 'AbortError';
  }
}

/** @type {Record<string, typeof PyRuntimeError>} */
const errors = {
  PyRuntimeError, InvalidModel, UnsupportedOp, ShapeError, InvalidInput, OutOfMemory, MemoryFault, InternalError, DeviceLost,
  NoAdapter, NotDifferentiable, SessionFailed, ExecutionError, LimitExceeded, QuotaExceeded, Terminated,
};

/** @param {Function} kind */
const typeOf = (kind) => Object.keys(errors).find((name) => errors[name] === kind) ?? 'PyRuntimeError';
/** The root class has no part of its own there. @param {string} type */
const helpOf = (type) => address() && `${address()}${type === 'PyRuntimeError' ? '' : `#${type}`}`;

/**
 * @param {unknown} error
 * @returns {ErrorPayload}
 */
export function toPayload(error) {
  if (error instanceof PyRuntimeError) {
    return { type: error.type, message: error.detail, node: error.node, hint: error.hint };
  }
  if (error instanceof Error && error.name === 'CompileError' && /Content.Security.Policy|CSP/i.test(error.message)) {
    const hint = "a Content-Security-Policy needs script-src 'wasm-unsafe-eval'";
    return { type: 'SessionFailed', message: `this page may not compile WebAssembly: ${error.message}`, node: '', hint };
  }
  if (error instanceof Error) return { type: error.name, message: error.message, node: '', hint: '' };
  return { type: 'PyRuntimeError', message: String(error), node: '', hint: '' };
}

/**
 * The error of a payload. An unknown type (a bug of this package) becomes part of the text.
 * @param {ErrorPayload} payload
 * @returns {PyRuntimeError}
 */
export function fromPayload({ type, message, node, hint }) {
  const known = errors[type];
  return known ? new known(message, { node, hint }) : new PyRuntimeError(`${type}: ${message}`, { node, hint });
}

/** An error of a run with what a caller should do, if it says nothing about it. @param {unknown} error @param {string} hint */
export function withHint(error, hint) {
  if (!(error instanceof ExecutionError) || error.hint) return error;
  return new ExecutionError(error.detail, { node: error.node, hint, cause: error });
}

/** The error for an index in data that is out of range. @param {string} node @param {number | bigint} index @param {number} extent */
export function outOfRange(node, index, extent) {
  return new ExecutionError(`index ${index} is out of range for ${extent} element${extent === 1 ? '' : 's'}`, { node });
}

// The exception tree of pyruntime/errors.py, in JavaScript: an error raised in Python reaches the page whole.

/**
 * What crosses the worker boundary; `message` is without node and hint.
 * @typedef {{ type: string, message: string, node: string, hint: string }} ErrorPayload
 */

/** Root of the tree. `message` reads "node: detail (hint)", the parts are fields of their own. */
export class PyRuntimeError extends Error {
  /**
   * @param {string} detail
   * @param {{ node?: string, hint?: string, cause?: unknown }} [where]
   */
  constructor(detail, { node = '', hint = '', cause } = {}) {
    super(`${node ? `${node}: ` : ''}${detail}${hint ? ` (${hint})` : ''}`, cause === undefined ? undefined : { cause });
    this.detail = detail;
    this.node = node;
    this.hint = hint;
  }

  /** The class name, the same as in Python and unharmed by minifiers. */
  get type() {
    return Object.keys(errors).find((name) => errors[name] === this.constructor) ?? 'PyRuntimeError';
  }

  /** @override */
  get name() {
    return this.type;
  }
}

/** The bytes are not a valid ONNX model, or could not be fetched. */
export class InvalidModel extends PyRuntimeError {}
/** An operator, a meaning of it, an attribute or a type that is not implemented. */
export class UnsupportedOp extends PyRuntimeError {}
/** Shapes or attributes of a node contradict each other. */
export class ShapeError extends PyRuntimeError {}
/** A feed has a wrong name, element type, rank, dimension or value. The session stays usable. */
export class InvalidInput extends PyRuntimeError {}
/** A memory limit would be exceeded; nothing was allocated. */
export class OutOfMemory extends PyRuntimeError {}
/** An allocator was misused: always a bug of ours. */
export class MemoryFault extends PyRuntimeError {}
/** The engine failed where it should have worked or refused: always a bug of ours. */
export class InternalError extends PyRuntimeError {}
/** The GPU device is gone and could not be rebuilt. */
export class DeviceLost extends PyRuntimeError {}
/** The browser gives no WebGPU adapter or device. */
export class NoAdapter extends PyRuntimeError {}
/** The session cannot run any more. */
export class SessionFailed extends PyRuntimeError {}
/** A kernel refused its data while running. */
export class ExecutionError extends PyRuntimeError {}

/** Compiling would take more time, or give more code, than the session's options allow. */
export class LimitExceeded extends PyRuntimeError {}
/** The browser's storage has no room for what a page wants to keep: `needed`, `usage` and `quota` are bytes. */
export class QuotaExceeded extends PyRuntimeError {}
/**
 * It was stopped on demand. By a signal: `cause` is the signal's reason and `name` the reason's, "AbortError" if the page
 * gave none, so that what is written for `fetch` works. A session whose run was stopped stays usable.
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
  NoAdapter, SessionFailed, ExecutionError, LimitExceeded, QuotaExceeded, Terminated,
};

/**
 * @param {unknown} error
 * @returns {ErrorPayload}
 */
export function toPayload(error) {
  if (error instanceof PyRuntimeError) {
    return { type: error.type, message: error.detail, node: error.node, hint: error.hint };
  }
  if (error instanceof Error) return { type: error.name, message: error.message, node: '', hint: '' };
  return { type: 'PyRuntimeError', message: String(error), node: '', hint: '' };
}

/**
 * A class of the tree where `type` names one; any other type (a bug of ours) keeps its name in the text.
 * @param {ErrorPayload} payload
 * @returns {PyRuntimeError}
 */
export function fromPayload({ type, message, node, hint }) {
  const known = errors[type];
  return known ? new known(message, { node, hint }) : new PyRuntimeError(`${type}: ${message}`, { node, hint });
}

/** What an executor says of an index that data gave. @param {string} node @param {number | bigint} index @param {number} extent */
export function outOfRange(node, index, extent) {
  return new ExecutionError(`index ${index} is out of range for ${extent} element${extent === 1 ? '' : 's'}`, { node });
}

// Runs If and Loop steps. Twin of pyruntime/native/execution/control.py.

import { evaluateAll } from '../common/dims.js';
import { andThen } from '../common/maybe_promise.js';
import { afterBranch, LoopStates } from '../runtime/loop_states.js';
import { LATEST, LEAST, repeats, SHORT } from '../runtime/repeats.js';

/** @import { LoopStep, TensorValue } from '../common/program.js' */
/** @import { State } from '../runtime/states.js' */
/** @import { Executor } from './types.js' */
/** @typedef {import('../common/maybe_promise.js').MaybePromise<State>} MaybeState */
/** @typedef {(...args: number[]) => number} Steps runs steps of a loop's body, and returns their number */

/**
 * @param {Executor} executor @param {import('../common/program.js').IfStep} step @param {State} state @param {string} key
 * @returns {MaybeState}
 */
export function runIf(executor, step, state, key) {
  const [condition] = executor.readNumbers(state, step.condition);
  const branch = condition ? step.then : step.orelse;
  return andThen(executor.runBlock(branch, state), (after) => afterBranch(executor.plan, step, branch, after, key, shape, executor.hosts));
}

/**
 * Inputs of the body: iteration number, condition, carried values. Outputs of the body: condition, carried values, values
 * to stack.
 * @param {Executor} executor @param {LoopStep} step @param {State} state @param {string} key
 * @returns {MaybeState}
 */
export function runLoop(executor, step, state, key) {
  const read = (/** @type {TensorValue | null} */ value, /** @type {number} */ otherwise) => (value ? executor.readNumbers(state, value)[0] : otherwise);
  const trips = read(step.trip, Infinity);
  let going = read(step.condition, 1);
  const loop = new Loop(executor, step, key);
  let n = 0;
  /** @type {import('../runtime/repeats.js').Repeats | null} */
  let batches = null;
  /** @param {State} inner @returns {State} */
  const finish = (inner) => {
    going = loop.collect(inner);
    n++;
    return loop.end(inner);
  };
  /** @param {State} outer @returns {MaybeState} */
  const go = (outer) => {
    while (n < trips && going) {
      if (n < LATEST && trips - n >= LEAST) batches ??= loop.batches(outer);
      if (batches) {
        const wait = executor.stop?.yieldIfDue();
        if (wait) return wait.then(() => go(outer));
        const [steps, condition] = loop.repeat(batches, n, trips);
        going = condition;
        n += steps;
        outer = batches.state;
        continue;
      }
      const inner = executor.runBlock(step.body, loop.next(outer, n));
      if (inner instanceof Promise) return inner.then((later) => go(finish(later)));
      outer = finish(inner);
    }
    return loop.finish(outer);
  };
  return go(loop.start(state));
}

/** With the values that a loop stacks. */
class Loop extends LoopStates {
  /** @param {Executor} executor @param {LoopStep} step @param {string} key */
  constructor(executor, step, key) {
    super(executor.plan, step, key, shape, executor.hosts);
    this.executor = executor;
    /** For each stacked value the values of all iterations: bytes or strings. @type {(Uint8Array | (string | number)[])[][]} */
    this.rows = this.stacked.map(() => []);
    /** For each stacked value its dims in each iteration. @type {number[][][]} */
    this.shapes = this.stacked.map(() => []);
  }

  /** Copies the carried values, because the body owns them. @param {State} state @returns {State} */
  start(state) {
    const { executor } = this;
    const after = this.enter(state);
    this.step.carried.forEach(({ buffer }, i) => {
      const target = this.inputs[i].buffer;
      const host = executor.hosts.get(buffer);
      if (host) executor.hosts.set(target, host);
      else executor.bytes(after, target).set(executor.bytes(state, buffer));
    });
    return after;
  }

  /** Writes the iteration number and the condition. @param {State} state @param {number} n @returns {State} */
  next(state, n) {
    for (const buffer of this.turn) {
      const bytes = this.executor.bytes(state, buffer);
      if (buffer === this.number) new DataView(bytes.buffer, bytes.byteOffset).setBigInt64(0, BigInt(n), true);
      else bytes[0] = 1;
    }
    return this.begin(state);
  }

  /** Copies the values to stack. Returns the condition: 0 or 1. @param {State} state */
  collect(state) {
    const { executor } = this;
    this.stacked.forEach((value, i) => {
      this.shapes[i].push(shape(value, state.env));
      this.rows[i].push(executor.hosts.get(value.buffer) ?? executor.bytes(state, value.buffer).slice());
    });
    return executor.readNumbers(state, this.condition)[0];
  }

  /** Batches of steps inside WebAssembly from this state on, if they are possible. @param {State} state */
  batches(state) {
    const { executor, step } = this;
    if (!step.repeat || !executor.code[step.repeat.fn]) return null; // a profile has no such function
    const { address } = executor.plan.span(state, step.repeat.buffer);
    const found = repeats(executor.plan, step, this.key, state, address, executor.stop ? SHORT : Infinity, executor.team !== null);
    if (found) executor.memory.writeWords(found.first, Float64Array.from(found.words));
    return found;
  }

  /**
   * Runs a batch of steps from step n on. Returns the number of its steps, and the condition: 0 or 1.
   * @param {import('../runtime/repeats.js').Repeats} batches @param {number} n @param {number} trips @returns {[number, number]}
   */
  repeat(batches, n, trips) {
    const { executor: { code, header, memory }, executor, step } = this;
    const [body] = header.blocks[step.body].steps;
    memory.writeWords(batches.address, Float64Array.from(batches.begin(n, trips - n)));
    const start = performance.now();
    let steps = 0;
    try {
      steps = /** @type {Steps} */ (code[/** @type {{ fn: string }} */ (step.repeat).fn])(batches.address);
    } catch (error) {
      executor.refuse(/** @type {import('../common/program.js').WasmStep} */ (body), error);
    }
    const condition = memory.bytes[batches.took(steps, performance.now() - start)];
    executor.checkFaults();
    batches.rows.forEach(([address, size], i) => {
      for (let n = 0; n < steps; n++) this.shapes[i].push(this.shapes[i][0]);
      this.rows[i].push(memory.bytes.slice(address, address + steps * size));
    });
    return [steps, condition];
  }

  /** @param {State} state @returns {State} */
  finish(state) {
    const { executor, step } = this;
    const after = this.leave(state, this.shapes);
    this.stacks.forEach(({ buffer }, i) => {
      if (step.free.includes(buffer)) return; // nothing reads it
      if (executor.header.buffers[buffer].host) {
        executor.hosts.set(buffer, /** @type {(string | number)[][]} */ (this.rows[i]).flat());
        return;
      }
      const bytes = executor.bytes(after, buffer);
      let at = 0;
      for (const part of /** @type {Uint8Array[]} */ (this.rows[i])) {
        bytes.set(part, at);
        at += part.length;
      }
    });
    return after;
  }
}

/** @param {TensorValue} value @param {import('../common/dims.js').Env} env */
const shape = ({ dims }, env) => evaluateAll(dims, env);

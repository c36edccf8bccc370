// Runs If and Loop steps. Twin of pyruntime/native/execution/control.py.

import { evaluateAll } from '../common/dims.js';
import { andThen } from '../common/maybe_promise.js';
import { LATEST, LEAST, repeats, SHORT } from '../runtime/repeats.js';
import { stackedDims } from '../runtime/stacking.js';

/** @import { Binds, LoopStep, TensorValue } from '../common/program.js' */
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
  const made = tensors(executor.header.blocks[branch].outputs);
  return andThen(executor.runBlock(branch, state), (after) => {
    made.forEach(({ buffer }, i) => passHost(executor, buffer, step.outputs[i]));
    return executor.plan.advance(after, `${key}:join${branch}`, (next) => {
      executor.plan.bind(next, step.binds, made.map(({ dims }) => evaluateAll(dims, next.env)));
      made.forEach(({ buffer }, i) => next.rename(buffer, step.outputs[i]));
      next.drop(step.free);
    });
  });
}

/**
 * Inputs of the body: iteration number, condition, carried values. Outputs of the body: condition, carried values, values
 * to stack.
 * @param {Executor} executor @param {LoopStep} step @param {State} state @param {string} key
 * @returns {MaybeState}
 */
export function runLoop(executor, step, state, key) {
  const trips = step.trip ? executor.readNumbers(state, step.trip)[0] : Infinity;
  let going = step.condition ? Boolean(executor.readNumbers(state, step.condition)[0]) : true;
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
        const batch = loop.repeat(batches, n, trips);
        going = batch.going;
        n += batch.steps;
        outer = batches.state;
        continue;
      }
      const inner = executor.runBlock(step.body, loop.begin(outer, n));
      if (inner instanceof Promise) return inner.then((later) => go(finish(later)));
      outer = finish(inner);
    }
    return loop.leave(outer, n);
  };
  return go(loop.enter(state));
}

/** The state of a loop. Its carried values are in the body's input buffers between iterations. */
class Loop {
  /** @param {Executor} executor @param {LoopStep} step @param {string} key */
  constructor(executor, step, key) {
    this.executor = executor;
    this.step = step;
    this.key = key;
    const body = executor.header.blocks[step.body];
    this.inputs = body.inputs;
    const first = this.inputs.slice(0, 2).map(({ buffer }) => buffer);
    /** The iteration number and the condition, if the body uses them. @type {number[]} */
    this.turn = first.filter((buffer) => !body.unused.includes(buffer));
    this.unused = body.unused.filter((buffer) => !first.includes(buffer));
    const [condition, ...made] = tensors(body.outputs);
    this.condition = condition;
    this.made = made;
    this.carried = step.carried.length;
    /** For each stacked value the values of all iterations: bytes or strings. @type {(Uint8Array | (string | number)[])[][]} */
    this.stacks = made.slice(this.carried).map(() => []);
    /** For each stacked value its dims in each iteration. @type {number[][][]} */
    this.stackDims = made.slice(this.carried).map(() => []);
    this.scratch = step.repeat ? [step.repeat.buffer] : [];
  }

  /** The symbols that the body's inputs set; inputs are numbered by their position among the carried values. @returns {Binds} */
  get enters() {
    return this.step.enters.map(([input, axis, symbol]) => [input - 2, axis, symbol]);
  }

  /** Copies the carried values, because the body owns them. @param {State} state @returns {State} */
  enter(state) {
    const { executor, step } = this;
    const after = executor.plan.advance(state, `${this.key}:enter`, (next) => {
      executor.plan.bind(next, this.enters, step.carried.map(({ dims }) => evaluateAll(dims, state.env)));
      for (const { buffer } of this.inputs.slice(2)) executor.plan.take(next, buffer);
      for (const buffer of [...this.turn, ...this.scratch]) executor.plan.take(next, buffer);
    });
    step.carried.forEach(({ buffer }, i) => {
      const target = this.inputs[i + 2].buffer;
      const host = executor.hosts.get(buffer);
      if (host) executor.hosts.set(target, host);
      else executor.bytes(after, target).set(executor.bytes(state, buffer));
    });
    return after;
  }

  /** Writes the iteration number and the condition. @param {State} state @param {number} n @returns {State} */
  begin(state, n) {
    const { executor } = this;
    for (const buffer of this.turn) {
      const bytes = executor.bytes(state, buffer);
      if (buffer === this.inputs[0].buffer) new DataView(bytes.buffer, bytes.byteOffset).setBigInt64(0, BigInt(n), true);
      else bytes[0] = 1;
    }
    return this.unused.length ? executor.plan.advance(state, `${this.key}:unused`, (next) => next.drop(this.unused)) : state;
  }

  /** Copies the values to stack. Returns the condition. @param {State} state @returns {boolean} */
  collect(state) {
    const { executor } = this;
    const scanned = this.made.slice(this.carried);
    scanned.forEach(({ buffer, dims }, i) => {
      this.stackDims[i].push(evaluateAll(dims, state.env));
      this.stacks[i].push(executor.hosts.get(buffer) ?? executor.bytes(state, buffer).slice());
    });
    return Boolean(executor.readNumbers(state, this.condition)[0]);
  }

  /** The body's results become the carried values of the next iteration. @param {State} state @returns {State} */
  end(state) {
    const { executor, made, inputs } = this;
    made.slice(0, this.carried).forEach(({ buffer }, i) => passHost(executor, buffer, inputs[i + 2].buffer));
    return executor.plan.advanceInterned(state, `${this.key}:end`, (next) => {
      const dims = made.slice(0, this.carried).map((value) => evaluateAll(value.dims, next.env));
      next.drop(inputs.map(({ buffer }) => buffer));
      next.drop([this.condition, ...made.slice(this.carried)].map(({ buffer }) => buffer));
      dims.forEach((_, i) => next.rename(made[i].buffer, inputs[i + 2].buffer));
      executor.plan.bind(next, this.enters, dims);
      for (const buffer of this.turn) executor.plan.take(next, buffer);
    });
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

  /** Runs a batch of steps from step n on. @param {import('../runtime/repeats.js').Repeats} batches @param {number} n @param {number} trips */
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
    const going = memory.bytes[batches.took(steps, performance.now() - start)] !== 0;
    executor.checkFaults();
    batches.rows.forEach(([address, size], i) => {
      for (let n = 0; n < steps; n++) this.stackDims[i].push(this.stackDims[i][0]);
      this.stacks[i].push(memory.bytes.slice(address, address + steps * size));
    });
    return { steps, going };
  }

  /** @param {State} state @param {number} n @returns {State} */
  leave(state, n) {
    const { executor, step, inputs } = this;
    const stacked = step.outputs.slice(this.carried).map(({ dims }, i) => stackedDims(this.stackDims[i], dims.length, step.node));
    const results = step.outputs.slice(0, this.carried);
    results.forEach(({ buffer }, i) => passHost(executor, inputs[i + 2].buffer, buffer));
    const after = executor.plan.advance(state, `${this.key}:leave${JSON.stringify(stacked)}`, (next) => {
      const carried = results.map((_, i) => evaluateAll(inputs[i + 2].dims, next.env));
      executor.plan.bind(next, step.binds, [...carried, ...stacked]);
      results.forEach(({ buffer }, i) => next.rename(inputs[i + 2].buffer, buffer));
      for (const { buffer } of step.outputs.slice(this.carried)) executor.plan.take(next, buffer);
      next.drop([...this.turn, ...this.scratch, ...step.free]);
    });
    step.outputs.slice(this.carried).forEach(({ buffer }, i) => {
      if (step.free.includes(buffer)) return; // nothing reads it
      if (executor.header.buffers[buffer].host) {
        executor.hosts.set(buffer, /** @type {(string | number)[][]} */ (this.stacks[i]).flat());
        return;
      }
      const bytes = executor.bytes(after, buffer);
      let at = 0;
      for (const part of /** @type {Uint8Array[]} */ (this.stacks[i])) {
        bytes.set(part, at);
        at += part.length;
      }
    });
    return after;
  }
}

/** Moves strings from one buffer to another. @param {Executor} executor @param {number} from @param {number} to */
function passHost(executor, from, to) {
  const host = executor.hosts.get(from);
  if (host) executor.hosts.set(to, host);
}

/** @param {import('../common/program.js').Value[]} values @returns {TensorValue[]} */
function tensors(values) {
  return values.map((value) => {
    if (!value || 'items' in value) throw new Error('an output of a block is no tensor');
    return value;
  });
}

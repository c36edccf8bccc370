// The Programs of one model, and their executors.

import { freeSpare } from '../run/memory.js';
import { MAX_PROGRAMS } from '../runtime/session_rules.js';

/** @import { ProgramData } from '../common/program.js' */
/** @import { Executor } from '../run/executor.js' */

/** Start of the cache keys of Programs of some outputs. */
export const PART = 'outputs ';

export class ProgramTable {
  /** By cache key. @type {Map<string, ProgramData>} */
  programs = new Map();
  /** By cache key; a Program without an executor gets one when it runs. @type {Map<string, Executor>} */
  executors = new Map();
  /** Called with an executor before it loses its memory. @type {(executor: Executor) => void} */
  onRelease = () => {};
  /** Cache key of the latest run. */
  latestKey = '';

  /** Adds a Program; drops the oldest, except the one for all feeds, if the table is full. @param {string} key @param {ProgramData} program */
  add(key, program) {
    const [oldest] = [...this.programs.keys()].filter((name) => name !== '');
    if (this.programs.size >= MAX_PROGRAMS && !this.programs.has(key)) this.forget(oldest);
    this.programs.set(key, program);
  }

  /** @param {string} key */
  forget(key) {
    this.releaseExecutor(key);
    this.programs.get(key)?.python?.destroy();
    this.programs.delete(key);
  }

  clear() {
    for (const key of [...this.programs.keys()]) this.forget(key);
  }

  /** @param {string} key */
  releaseExecutor(key) {
    const executor = this.executors.get(key);
    if (executor) this.onRelease(executor);
    executor?.release();
    this.executors.delete(key);
  }

  releaseExecutors() {
    for (const key of [...this.executors.keys()]) this.releaseExecutor(key);
  }

  /** Frees all memory but that of the latest Program's executor. @returns {boolean} whether it freed any */
  freeOthers() {
    const others = [...this.executors.keys()].filter((key) => key !== this.latestKey);
    for (const key of others) this.releaseExecutor(key);
    return freeSpare() || others.length > 0;
  }

  /** The executor of the latest run, or of any Program. @returns {Executor | undefined} */
  get latestExecutor() {
    return this.executors.get(this.latestKey) ?? [...this.executors.values()].pop();
  }

  /** Bytes of linear memory. */
  arenaBytes() {
    return [...this.executors.values()].reduce((sum, executor) => sum + executor.arenaBytes(), 0);
  }
}

// The states of a session, as in pyruntime/session/states.py.

import { SessionFailed } from '../common/errors.js';

/** @typedef {'running' | 'ready' | 'recovering' | 'failed' | 'released'} State */

/**
 * The states that may follow each state.
 * running: work is under way, at first the opening of the session; ready: the session accepts work; recovering: the GPU was lost
 * or its memory full; failed: no device is left, the next run tries again; released: memory is freed, further work is an error.
 * @type {Record<State, readonly State[]>}
 */
export const TRANSITIONS = {
  running: ['ready', 'recovering', 'failed', 'released'],
  ready: ['running', 'released'],
  recovering: ['running', 'failed'],
  failed: ['running', 'released'],
  released: [],
};

export class SessionState {
  /** @type {State} */
  current = 'running';

  /** @param {State} next */
  enter(next) {
    const { current } = this;
    if (current === 'released') throw new SessionFailed('the session was released');
    if (!TRANSITIONS[current].includes(next)) throw new SessionFailed(`a session cannot go from ${current} to ${next}`);
    this.current = next;
  }

  /** Does work while the session is running. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  async during(work) {
    this.enter('running');
    return this.finish(work);
  }

  /** Does work of a session that is running already. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  async finish(work) {
    try {
      return await work();
    } finally {
      if (this.current === 'running') this.enter('ready');
    }
  }
}

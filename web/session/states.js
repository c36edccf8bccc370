// The state of a session. pyruntime/runtime/session_rules.py has the transitions. Twin of pyruntime/session/states.py.

import { SessionFailed } from '../common/errors.js';
import { TRANSITIONS } from '../runtime/session_rules.js';

/** @import { State } from '../common/protocol.js' */

export class SessionState {
  /** @type {State} */
  current = 'running';
  /** How often the session has recovered. */
  recovered = 0;
  /** Gets the states that are worth an event: those of faults. @type {(state: State) => void} */
  changed = () => {};

  /** @param {State} next */
  enter(next) {
    const { current } = this;
    if (current === 'released') throw new SessionFailed('the session was released', { hint: 'create another' });
    if (!TRANSITIONS[current].includes(next)) throw new SessionFailed(`a session cannot go from ${current} to ${next}`);
    this.current = next;
    if (current === 'recovering' && next === 'running') this.recovered++;
    if (current === 'recovering' || next === 'recovering' || next === 'failed') this.changed(next);
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

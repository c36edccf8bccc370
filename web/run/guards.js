// Checks the conditions on shapes in a Program's header. Mirrors pyruntime/native/execution/guards.py.

import { evaluate, symbols } from '../common/dims.js';
import { ShapeError } from '../common/errors.js';

export class Guards {
  /** @param {Pick<import('../common/program.js').Header, 'guards' | 'symbols'>} header */
  constructor({ guards, symbols: shown }) {
    this.shown = shown;
    this.all = guards.map(([dim, message, node]) => ({ dim, message, node, names: [...symbols(dim)] }));
  }

  /**
   * Checks guards whose symbols all have values, at least one of which is new.
   * @param {import('../common/dims.js').Env} env @param {Set<string>} fresh symbols with new values
   */
  check(env, fresh) {
    for (const { dim, message, node, names } of this.all) {
      if (!names.every((name) => env.has(name)) || (names.length && !names.some((name) => fresh.has(name)))) continue;
      if (evaluate(dim, env)) continue;
      const hint = names.map((name) => `${this.shown[name] ?? name} = ${env.get(name)}`).sort().join(', ');
      throw new ShapeError(message, { node, hint });
    }
  }
}

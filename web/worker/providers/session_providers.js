// The providers that one session has opened: the parts of its Programs, and faults, after which the nodes at fault move to the
// next provider.

import { Terminated } from '../../common/errors.js';
import { during, warn } from '../../common/log.js';
import { ArrayParts, attempt, textOf } from '../../run/array_parts.js';
import { inPython } from '../../run/python_parts.js';

/** @import { LogOptions } from '../../common/log.js' */
/** @import { Part, ProviderError } from '../../run/array_parts.js' */
/** @import { Executor } from '../../run/executor.js' */
/** @import { Described } from '../../run/python_parts.js' */
/** @import { Model } from '../../session/model.js' */
/** @import { Compilation, PythonModel } from '../interpreter/python_model.js' */
/** @import { Instance } from './module_checks.js' */
/** What `compile` of a module returns. @typedef {(inputs: unknown, outputs: unknown, symbols: Record<string, number>) => unknown} Bind */
/** names: the module's names of symbols, by those of the Program. @typedef {Described & { names?: Record<string, string> }} JavaScriptPart */

export class SessionProviders {
  /** @param {LogOptions | undefined} logOptions @param {(number: number) => void} forget drops an instance */
  constructor(logOptions, forget) {
    this.logOptions = logOptions;
    this.forget = forget;
    /** Modules by name. @type {Map<string, { instance: Instance, number: number }>} */
    this.all = new Map();
    /** @type {Bind[]} */
    this.binds = [];
    /** @type {PythonModel | null} */
    this.model = null;
  }

  /** Keeps what `compile` has returned. @param {Bind} bind @returns {number} */
  keep(bind) {
    return this.binds.push(bind) - 1;
  }

  /** The parts of a Program, if it has any. @param {Compilation} compilation */
  partsOf(compilation) {
    const { python } = /** @type {PythonModel} */ (this.model);
    const { parts } = compilation;
    /** @type {Record<string, JavaScriptPart>} */
    const found = JSON.parse(parts.described());
    const providers = [...new Set(Object.values(found).map(({ provider }) => provider))];
    if (!providers.length) return undefined;
    const bound = Object.entries(found).map(([id, part]) => {
      const own = part.number === null;
      const bind = own ? inPython(Number(id), (...given) => parts.bind(...given), (action) => python.guard(action)) : this.bound(part);
      return /** @type {[number, Part]} */ ([Number(id), { ...part, bind }]);
    });
    const inPythonOnly = (/** @type {string} */ name) => ({
      runStart: () => python.guard(() => parts.run_start(name)),
      runEnd: (/** @type {unknown} */ error) => python.guard(() => parts.run_end(name, error ? textOf(error) : '')),
    });
    return new WatchedParts(new Map(bound), providers.map((name) => [name, this.all.get(name)?.instance ?? inPythonOnly(name)]));
  }

  /** @param {JavaScriptPart} part @returns {Part['bind']} */
  bound({ number, names = {} }) {
    const bind = this.binds[Number(number)];
    const known = Object.entries(names);
    return (inputs, outputs, env) => bind(inputs, outputs, Object.fromEntries(known.flatMap(([program, name]) => (
      env.has(program) ? [[name, Number(env.get(program))]] : []))));
  }

  /**
   * Does work. After a fault of a provider the nodes at fault move to the next one, and the work is repeated.
   * @template T @param {Model} model @param {() => Promise<T>} work @returns {Promise<T>}
   */
  async repeated(model, work) {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (error instanceof Terminated) giveUpMemory(model);
        if (!(await this.leave(model, error))) throw error;
      }
    }
  }

  /**
   * Compiles again without the provider that failed, for the nodes at fault. Returns whether the work may be repeated.
   * @param {Model} model @param {unknown} error
   */
  async leave(model, error) {
    const { left } = /** @type {Partial<ProviderError>} */ (error);
    const { fallback = true, logOptions } = model.host;
    if (!left || !fallback || model.trainer) return false;
    const { python, proxy } = /** @type {PythonModel} */ (this.model);
    const isNew = during(logOptions, () => python.guard(() => proxy.added.leave_nodes(left.provider, JSON.stringify(left.nodes))));
    if (isNew) await model.recompile(() => python.guard(() => proxy.recompile()));
    return isNew;
  }

  /** What has left a provider (`Move`). */
  get moved() {
    return JSON.parse(/** @type {PythonModel} */ (this.model).proxy.added.moved);
  }

  /** Ends the use of all providers. */
  close() {
    for (const [name, { instance, number }] of this.all) {
      this.forget(number);
      Promise.resolve().then(() => instance.close?.()).catch((error) => warn(`provider "${name}" failed: ${textOf(error)}`, this.logOptions));
    }
    this.all.clear();
    this.model?.proxy.added.close();
  }
}

/** Parts whose providers know of the start and the end of each run. */
class WatchedParts extends ArrayParts {
  /** @param {Map<number, Part>} parts @param {[name: string, instance: Instance][]} providers */
  constructor(parts, providers) {
    super(parts);
    this.providers = providers;
  }

  /** @template T @param {Executor} executor @param {() => T | Promise<T>} run @returns {Promise<T>} */
  async during(executor, run) {
    /** @type {[part: { provider: string, nodes: string[] }, instance: Instance][]} */
    const begun = [];
    /** @type {unknown} */
    let error = null;
    try {
      for (const [provider, instance] of this.providers) {
        const part = { provider, nodes: [''] };
        await attempt(part, executor, () => instance.runStart?.());
        begun.push([part, instance]);
      }
      return await run();
    } catch (cause) {
      error = cause;
      throw cause;
    } finally {
      for (const [part, instance] of begun.reverse()) {
        const end = attempt(part, executor, () => instance.runEnd?.(error));
        await (error instanceof Terminated ? Promise.resolve(end).catch(() => {}) : end);
      }
    }
  }
}

/** A provider that was stopped may still write to the memory of its arrays. @param {Model} model */
function giveUpMemory({ table }) {
  if ([...table.executors.values()].some(({ memory }) => memory.isLeft)) table.releaseExecutors();
}

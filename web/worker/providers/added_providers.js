// Providers that users add (docs/extending.md#providers): modules in JavaScript, which this registry imports, and those that
// the page's Python code has registered.

import { InvalidInput, Terminated } from '../../common/errors.js';
import { importScript } from '../../common/import_script.js';
import { described, isPromise, orStopped, textOf } from '../../run/array_parts.js';
import { answerOf, faultsOf, registered } from './module_checks.js';
import { addedNames } from './named.js';
import { SessionProviders } from './session_providers.js';

/** @import { Interpreter } from '../interpreter/interpreter.js' */
/** @import { Python } from '../interpreter/python.js' */
/** @import { PythonModel } from '../interpreter/python_model.js' */
/** @import { Source } from '../models/types.js' */
/** @import { Instance, Registered } from './module_checks.js' */
/** What `open` of a module has made, or its error. @typedef {{ value: number } | { error: string, isInput?: boolean }} Opened */

/** @param {Python} python */
const inPython = (python) => python.pyodide.pyimport('pyruntime.page_providers.javascript_provider');

export class AddedProviders {
  /** @param {Interpreter} interpreter */
  constructor(interpreter) {
    this.interpreter = interpreter;
    /** Modules by name. @type {Map<string, Registered>} */
    this.modules = new Map();
    /** Open instances by number, with their sessions. @type {Map<number, { instance: Instance, session: SessionProviders }>} */
    this.instances = new Map();
    this.next = 0;
    /** What was opened for the session that Python reads the model of. @type {Map<string, Opened>} */
    this.opened = new Map();
  }

  /** Imports a module and registers the provider that it exports. @param {string} address @returns {Promise<string>} its name */
  async register(address) {
    const module = await importScript(address).catch((error) => {
      const { cause } = /** @type {{ cause?: Error }} */ (error);
      throw new InvalidInput(`cannot import the provider ${address}: ${(cause ?? error).message}`, { cause: error });
    });
    const found = registered(address, /** @type {{ default?: unknown }} */ (module));
    const { name, factory, ...rest } = found;
    if (this.modules.get(name)?.factory === factory) return name;
    const python = await this.interpreter.start();
    python.guard(() => inPython(python).register(this, JSON.stringify({ name, ...rest })));
    this.modules.set(name, found);
    return name;
  }

  /**
   * Reads a model for a session, with an instance of each provider that the session names.
   * @param {Source} source @param {Python} python @param {() => PythonModel} read reads the model in Python
   */
  async open({ options, host, stop }, python, read) {
    const named = addedNames(options);
    if (!named.length) return read();
    const session = new SessionProviders(host.logOptions, (number) => this.instances.delete(number));
    try {
      const given = JSON.stringify(options.providerOptions ?? {});
      const checked = python.guard(() => JSON.parse(inPython(python).provider_options(JSON.stringify(named), given)));
      const opened = new Map();
      for (const name of named) {
        const module = this.modules.get(name);
        if (module) opened.set(name, await this.opening(module, session, checked[name], host.threads ?? 1, stop));
      }
      this.opened = opened;
      const model = read();
      session.model = model;
      model.added = session;
      return model;
    } catch (error) {
      session.close();
      throw error;
    }
  }

  /**
   * Opens an instance.
   * @param {Registered} module @param {SessionProviders} session @param {unknown} options @param {number} threads
   * @param {import('../../common/stop.js').Stop | null} stop @returns {Promise<Opened>}
   */
  async opening({ name, factory }, session, options, threads, stop) {
    try {
      const made = factory.open ? factory.open(options, threads) : factory;
      const instance = isPromise(made) ? await orStopped(Promise.resolve(made), stop) : made;
      if (typeof instance !== 'object' || instance === null) throw new TypeError(`open returned ${described(instance)}, no provider`);
      const wrong = faultsOf(instance, ['supports', 'compile']);
      if (wrong) throw new TypeError(`open returned no provider: ${wrong}`);
      const number = this.next++;
      this.instances.set(number, { instance, session });
      session.all.set(name, { instance, number });
      return { value: number };
    } catch (error) {
      if (error instanceof Terminated) throw error;
      return error instanceof RangeError ? { error: error.message, isInput: true } : { error: textOf(error) };
    }
  }

  /** For Python (pyruntime/javascript/provider.py): what was opened, as JSON. @param {string} name */
  take(name) {
    return JSON.stringify(this.opened.get(name));
  }

  /**
   * For Python: the answer of an instance to a question of compilation, as JSON.
   * @param {number} number @param {string} member @param {string} given JSON
   */
  ask(number, member, given) {
    const { instance, session } = /** @type {{ instance: Instance, session: SessionProviders }} */ (this.instances.get(number));
    try {
      const answer = answerOf(instance, member, JSON.parse(given));
      return JSON.stringify({ value: member === 'compile' ? session.keep(answer) : answer });
    } catch (error) {
      return JSON.stringify({ error: textOf(error) });
    }
  }
}

// Writes what sessions do as User Timing measures, which the browser's developer tools show in tracks of their own.
// Spec: https://www.w3.org/TR/user-timing/, https://developer.chrome.com/docs/devtools/performance/extension

/** @import { KernelTiming } from '../common/protocol.js' */

/**
 * An event of a session (docs/watching.md): times and facts of the creation, of a run, or a state. Those of other types are not measured.
 * @typedef {{ type: string, session: number, name: string, start: number, milliseconds: number, outcome: string,
 *   place: string, error: string, state: string, timings: Record<string, number>, kernels: KernelTiming[] }} SessionEvent
 */

const MOST = 1000; // entries: the browser keeps them all until they are cleared

/**
 * Returns a function that ends it.
 * @param {{ on(name: 'session', listener: (event: SessionEvent) => void): () => void }} ort the package, which has `on`
 * @returns {() => void}
 */
export function exportMeasures({ on }) {
  /** @type {Set<string>} */
  const names = new Set();
  let count = 0;
  const write = (/** @type {string} */ name, /** @type {number} */ start, /** @type {number} */ duration, /** @type {object} */ detail) => {
    if (count++ >= MOST) clear();
    names.add(name);
    performance.measure(name, { start: Math.max(0, start), duration, detail });
  };
  const clear = () => {
    for (const name of names) performance.clearMeasures(name);
    names.clear();
    count = 1;
  };
  return on('session', (event) => measure(event, write));
}

/** @param {SessionEvent} event @param {(name: string, start: number, duration: number, detail: object) => void} write */
function measure(event, write) {
  const { type, session, name, start, milliseconds, outcome, place, error, state } = event;
  const track = `${name || 'session'} ${session}`;
  const entry = (/** @type {string} */ color, /** @type {Record<string, unknown>} */ facts) => {
    const properties = Object.entries(facts).filter(([, value]) => value !== undefined && value !== '').map(([key, value]) => [key, String(value)]);
    return { session, ...facts, devtools: { dataType: 'track-entry', track, trackGroup: 'pyruntime', color, properties } };
  };
  if (type === 'state') return void write(`${track}: ${state}`, performance.now(), 0, entry('warning', { state }));
  if (type === 'created') {
    write(`${track}: create`, start, milliseconds, entry('secondary-dark', {}));
    let at = start;
    for (const [phase, took] of Object.entries(event.timings)) {
      write(`${track}: ${phase}`, at, took, entry('secondary', {}));
      at += took;
    }
    return;
  }
  if (type !== 'run') return; // an event without a duration, such as `step`: the run behind it has an event of its own
  write(`${track}: run`, start, milliseconds, entry(outcome === 'succeeded' ? 'primary' : 'error', { outcome, place, error }));
  let end = start;
  for (const { node, kernel, place: provider, milliseconds: took, start: own } of event.kernels) {
    const at = own === undefined ? end : start + own;
    write(node, at, took, entry('primary-light', { kernel, provider }));
    end = at + took;
  }
}

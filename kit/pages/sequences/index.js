// Random sequences of calls of the package's public API in a page, by fast-check's model-based commands. A plain evaluator
// without memory says what each call should give. `python -m fuzz.page_sequences` and e2e/test_page_sequences.py run them.

import fc from 'fast-check';
import * as extras from '/dist/extras.mjs';
import * as ort from '/dist/ort.mjs';
import { Faults } from './faults.js';
import { inference } from './inference.js';
import { text } from './text.js';
import { training } from './training.js';
import { World, inTime } from './world.js';

const faults = {
  inject: {
    draw: fc.record({ fault: fc.constantFrom('lost', 'full', 'shader'), skipped: fc.nat(3), times: fc.constantFrom(1, 1, 2, 50) }),
    check: ({ fault, entries }) => !fault && entries.some(({ isOnGpu }) => isOnGpu),
    run: (world, { fault, skipped, times }) => world.inject(fault, skipped, fault === 'lost' ? 1 : times),
  },
  heal: { draw: fc.constant({}), check: ({ fault }) => Boolean(fault), run: (world) => world.heal() },
};

const waiting = {
  settle: { draw: fc.constant({}), run: (world) => world.settle() },
  pause: { draw: fc.record({ milliseconds: fc.nat(8) }), run: (_, { milliseconds }) => new Promise((resolve) => { setTimeout(resolve, milliseconds); }) },
  limit: {
    draw: fc.record({ linear: fc.constantFrom(undefined, undefined, 2 ** 18, 2 ** 21), gpu: fc.constantFrom(undefined, undefined, 2 ** 18) }),
    run: (world, { linear, gpu }) => world.limit(linear, gpu),
  },
  /** Ends the worker, and with it all sessions. */
  shutdown: {
    draw: fc.constant({}),
    check: ({ entries }) => entries.length > 3,
    async run(world) {
      for (const entry of world.entries) entry.isReleased = true;
      for (const { entry } of world.pending) if (entry) entry.isReleased = true;
      world.ort.shutdown();
      await world.settle();
      Object.assign(world, { entries: [], tensors: [] });
      await world.faults.install();
    },
  },
};

/** @param {Record<string, Record<string, any>>} groups @returns commands by name, such as "training step" */
const named = (groups) => Object.fromEntries(Object.entries(groups).flatMap(([group, kinds]) => (
  Object.entries(kinds).map(([name, kind]) => [`${group} ${name}`, kind]))));
const KINDS = named({ session: inference, training, text, gpu: faults, page: waiting });

/** Number of commands so far. */
let made = 0;

/** A command of a sequence. */
class Command {
  constructor(name, given) {
    Object.assign(this, { name, given, kind: KINDS[name] });
  }

  check(world) {
    return this.kind.check?.(world, this.given) ?? true;
  }

  run(world) {
    made++;
    world.doing = this.toString();
    return this.kind.run(world, this.given);
  }

  toString() {
    return JSON.stringify([this.name, this.given]);
  }
}

const problems = [];
addEventListener('unhandledrejection', ({ reason }) => problems.push(`unhandled: ${reason?.stack ?? reason}`));
addEventListener('error', ({ message }) => problems.push(`error: ${message}`));
new BroadcastChannel('sequences').onmessage = ({ data }) => problems.push(data);

/** @param {string[]} names of the commands, "" for all */
const commandsOf = (names) => Object.keys(KINDS).filter((name) => !names.length || names.some((part) => name.startsWith(part)));

const tools = new Faults(ort);
const LIMIT = 180; // seconds of a sequence

/** Runs commands in a world of their own. */
async function play(commands, nets) {
  const world = new World({ ort, extras, nets, faults: tools });
  world.problems = problems;
  try {
    await inTime(fc.asyncModelRun(() => ({ model: world, real: world }), commands), LIMIT, world);
    await inTime(world.end(), LIMIT, world);
  } catch (error) {
    await inTime(world.abandon(), LIMIT, world);
    throw error;
  }
}

const bytes = (base64) => Uint8Array.fromBase64(base64);
/** The nets of kit/page_sequences.py, with their files as bytes. */
function decoded({ gemm: { adapters, ...gemm }, ...others }) {
  const files = Object.entries(adapters).map(([name, { file, delta }]) => [name, { file: bytes(file), delta }]);
  const nets = Object.entries({ ...others, gemm }).map(([name, net]) => [name, { ...net, model: bytes(net.model) }]);
  const found = Object.fromEntries(nets);
  return { ...found, gemm: { ...found.gemm, adapters: Object.fromEntries(files) } };
}

globalThis.sequences = {
  async start(nets) {
    this.nets = decoded(nets);
    ort.env.logLevel = 'fatal';
    await tools.install();
  },

  /** Random sequences. Result: their number, that of the commands, and the shrunk failure or null. */
  async search({ seed, runs, seconds, length, names = [], path = '' }) {
    const kinds = commandsOf(names).map((name) => KINDS[name].draw.map((given) => new Command(name, given)));
    const property = fc.asyncProperty(fc.commands(kinds, { maxCommands: length, size: 'max' }), (commands) => play(commands, this.nets));
    made = 0;
    const limits = seconds ? { interruptAfterTimeLimit: 1000 * seconds, markInterruptAsFailure: false } : {};
    const found = await fc.check(property, { seed, path, numRuns: runs, maxSkipsPerRun: 1000, ...limits });
    const { failed, numRuns, counterexample, counterexamplePath, errorInstance } = found;
    const failure = failed ? { commands: String(counterexample), path: counterexamplePath, error: String(errorInstance?.stack ?? errorInstance) } : null;
    return { runs: numRuns, commands: made, failure };
  },

  /** One sequence: [name, given] of each command. */
  async replay(list) {
    const commands = list.map(([name, given]) => new Command(name, given));
    await play(commands, this.nets);
  },
};

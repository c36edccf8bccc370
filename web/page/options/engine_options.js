// Options of the engine, and what presets decide. Written by scripts/contract.py from pyruntime/options.py.

import { count, list, locations, oneOf, positive, record, sizes, text } from './option_kinds.js';

/** @type {import('./option_kinds.js').Table} */
export const PROGRAM = {
  graphOptimizationLevel: oneOf('disabled', 'basic', 'extended', 'layout', 'all'),
  disabledPasses: list,
  freeDimensionOverrides: sizes,
  sampleFrom: text,
  choices: record,
  codeSizeLimit: positive('a number of bytes'),
};

/** @type {import('./option_kinds.js').Table} */
export const LIMITS = {
  compileTimeLimit: positive('a number of seconds'),
  memoryLimit: positive('a number of bytes'),
};

/** @type {import('./option_kinds.js').Table} */
export const SESSION = {
  intraOpNumThreads: count(),
  preset: oneOf('latency', 'throughput', 'power'),
  preferredOutputLocation: locations,
};

/** A compiled Program cannot honour them. */
export const REFUSED_FOR_PROGRAMS = ['sampleFrom'];

/** @type {Record<string, { threads: number, savesPower?: boolean }>} */
export const PRESETS = {
  latency: { threads: 4 },
  throughput: { threads: Infinity },
  power: { threads: 1, savesPower: true },
};

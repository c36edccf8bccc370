// A provider of products with the fault that its address names, for web/provider_check.js.

import layouts from './layouts.js';

const fault = new URL(import.meta.url).searchParams.get('fault');
const never = () => new Promise(() => {});
let asked = 0;
let closed = false;
let shared;

const JOBS = {
  wrong: (job, inputs, [out]) => { job(); out.forEach((_, n) => { out[n] += 1; }); },
  unwritten: (job, inputs, [out]) => { const [kept] = out; job(); out[0] = kept; },
  adds: (job, inputs, [out]) => { const kept = out.slice(); job(); out.forEach((_, n) => { out[n] += kept[n] === 0 ? 0 : 1; }); },
  inputs: (job, [x]) => { job(); x.fill(0); },
  counts: (job, inputs, [out]) => { job(); out.forEach((_, n) => { out[n] *= ++asked; }); },
  endless: never,
  throws: () => { throw new Error('no device'); },
  closed: (job) => { if (closed) throw new Error('the device is closed'); job(); },
  shares: async (job, inputs, [out]) => {
    job();
    shared = out.slice();
    await new Promise((resolve) => setTimeout(resolve, 3));
    out.set(shared.subarray(0, out.length));
  },
};

export default {
  ...layouts,
  name: 'hostile',
  options: fault === 'untyped' ? { device: null } : {},
  open: fault === 'closed' ? function open() { closed = false; return this; } : undefined,
  supports: (kernel) => layouts.supports(kernel) || (fault === 'idle' ? 'never' : fault === 'wavers' && ++asked % 2 ? 'not now' : ''),
  supportsNode: fault === 'late' ? async () => false : undefined,
  reads: () => false,
  packs: () => null,
  compile(part) {
    const bind = layouts.compile(part);
    return (inputs, outputs, symbols) => {
      const job = bind(inputs, outputs, symbols);
      return JOBS[fault] ? () => JOBS[fault](job, inputs, outputs) : job;
    };
  },
  runStart: fault === 'half' ? () => {} : undefined,
  runEnd: fault === 'again' ? (error) => { if (error) throw error; } : undefined,
  close() { closed = true; },
};

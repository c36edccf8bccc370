// What measurements say about the limits of the adapter (bench/gpu_report.py is the twin; bench/gpu_report.schema.json
// describes the report).

import * as ort from 'pyruntime';

/** @typedef {import('./probes.js').Peaks} Peaks */
/** @typedef {import('./values.js').Values} Values */
/** @typedef {{ name: string, type: 'float32' | 'float16', flops: number, bytes: number, model: string, weights: Values[], feeds: Record<string, Values> }} Case */
/** @typedef {{ median: number, low: number, high: number, runs: number }} Spread milliseconds */
/** @typedef {{ node: string, kernel: string, milliseconds: number, place: string, workgroup?: string, uses?: string[], source?: string }} Kernel */
/** @typedef {{ choices: Record<string, object>, error: number | null, milliseconds: Spread, repeat: number, kernels: Kernel[] }} Measured */
/** @typedef {Omit<Case, 'model' | 'weights' | 'feeds'> & Measured & { gflops: number, gbs: number, ofPeak: number, ofBandwidth: number, bound: string, share: number, skipped?: string, failed?: string }} Entry */
/** @typedef {{ name: string, webgpu: Spread, wasm: Spread, error: number | null, kernels: Kernel[], failed?: string }} Network */
/** @typedef {{ adapter: Record<string, any>, complete: boolean, date: string, engine: string, work: string, clock: string, peaks: Peaks, cases: Entry[], models: Network[], slow: string[], [key: string]: any }} Report */

export const [FORMAT, VERSION] = ['pyruntime GPU report', 1];
export const HALF = 0.5; // of the nearer bound; cases below are listed

/** @param {Case} one @param {Peaks} peaks */
export const secondsAtPeak = ({ flops, type }, peaks) => flops / (peaks[type] ?? peaks.float32);

/** The entry of a case: what was measured, rates, and shares of the limits. @param {Case} one @param {Peaks} peaks @param {Measured} measured @returns {Entry} */
export function entry(one, peaks, measured) {
  const seconds = Math.max(measured.milliseconds.median, 1e-6) / 1e3;
  const { name, type, flops, bytes } = one;
  const [ofPeak, ofBandwidth] = [secondsAtPeak(one, peaks) / seconds, bytes / peaks.bandwidth / seconds];
  return {
    name, type, flops, bytes, ...measured, gflops: flops / seconds / 1e9, gbs: bytes / seconds / 1e9,
    ofPeak, ofBandwidth, bound: ofPeak > ofBandwidth ? 'peak' : 'bandwidth', share: Math.max(ofPeak, ofBandwidth),
  };
}

/** Lists the cases below half of the nearer bound, and keeps the shaders of these alone, of software adapters none. @param {Report} report */
export function settle(report) {
  const done = report.cases.filter(({ share }) => share !== undefined);
  report.slow = done.filter(({ share }) => share < HALF).sort((a, b) => a.share - b.share).map(({ name }) => name);
  for (const { share, kernels } of done) if (share >= HALF || report.adapter.software) for (const kernel of kernels) delete kernel.source;
}

/**
 * A report without measurements.
 * @param {GPUAdapter} adapter @param {boolean} software @param {string} work @param {object} settings @returns {Report}
 */
export function emptyReport(adapter, software, work, settings) {
  const { vendor, architecture, device, description } = adapter.info;
  /** @type {Record<string, number>} */
  const limits = {};
  for (const name in adapter.limits) limits[name] = /** @type {any} */ (adapter.limits)[name];
  return {
    format: FORMAT, version: VERSION, work, complete: false, date: `${new Date().toISOString().slice(0, 19)}+00:00`,
    engine: ort.env.versions.web ?? '', host: { kind: 'browser', name: navigator.userAgent, processor: `${navigator.hardwareConcurrency} threads` },
    adapter: { vendor, architecture, device, description, software, backend: 'browser' },
    features: [...adapter.features].sort(), languageFeatures: [...navigator.gpu.wgslLanguageFeatures ?? []].sort(), limits,
    clock: adapter.features.has('timestamp-query') ? 'timestamp-query' : 'queue', settings,
    peaks: { float32: 0, bandwidth: 0 }, cases: [], models: [], slow: [],
  };
}

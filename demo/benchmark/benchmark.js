// Measures models with this engine and with onnxruntime-web in turns, and makes a link of the result.

import * as ort from 'pyruntime';
import { $, duration, make, messageOf, Status } from '../common.js';
import { storedNetworks } from '../lib/networks.js';
import { unsupported } from '../lib/unsupported.js';
import { flushState, readState, writeState } from '../lib/url_state.js';
import { MODELS } from './models.js';
import { measure } from './turns.js';

/** @typedef {import('./turns.js').Row} Row */
/** @typedef {{ rows: Row[], device: string, date: string }} Result */

const status = new Status($('#status'));
const WRONG = 1e-2; // difference of results, relative to the largest value

/** onnxruntime-web, if the host has put it beside the site; on as many threads as this engine. */
async function peer() {
  const address = new URL('../onnxruntime-web/ort.wasm.min.mjs', import.meta.url).href;
  const answer = navigator.onLine ? await fetch(address, { method: 'HEAD' }).catch(() => null) : null;
  if (!answer?.ok) return null;
  const theirs = await import(address);
  theirs.env.logLevel = 'error';
  Object.assign(theirs.env.wasm, { wasmPaths: new URL('./', address).href, numThreads: 1 });
  return theirs;
}

/** The geometric mean of the ratios. @param {Row[]} rows */
function mean(rows) {
  const ratios = rows.filter(({ theirs }) => theirs).map(({ ours, theirs }) => Math.log(Number(theirs) / ours));
  return ratios.length ? Math.exp(ratios.reduce((a, b) => a + b, 0) / ratios.length) : 0;
}

/** @param {Row} row @param {number} most milliseconds of the widest bar */
function rowOf({ name, ours, theirs, difference }, most) {
  const bar = (/** @type {string} */ kind, /** @type {number} */ time) => make('div', { class: `bar ${kind}` }, make('i', { style: `--share: ${time / most}` }), make('span', {}, duration(time)));
  const ratio = theirs ? `${(theirs / ours).toFixed(2)}×` : '';
  const note = difference > WRONG ? ' results differ' : '';
  return make('tr', {}, make('th', { scope: 'row' }, name), make('td', {}, bar('ours', ours), ...(theirs ? [bar('theirs', theirs)] : [])), make('td', { class: 'number' }, ratio + note));
}

/** @param {Result} result */
function show({ rows, device, date }) {
  $('#results').hidden = false;
  $('#rows').replaceChildren(...rows.map((row) => rowOf(row, Math.max(row.ours, row.theirs ?? 0))));
  const ratio = mean(rows);
  $('#mean').textContent = ratio ? `${ratio.toFixed(2)}×` : '–';
  $('#counted').textContent = String(rows.length);
  $('#device').textContent = `${device} · ${date}`;
}

/** Offline, those are there that the site or an earlier visit has stored. @param {import('./models.js').Entry} model */
async function load({ url }) {
  const address = new URL(url, document.baseURI).href;
  const isStored = !url.startsWith('../models/') || (await storedNetworks()).includes(address);
  if (!navigator.onLine && !isStored) throw new Error('not stored in this browser.');
  const response = await fetch(address);
  if (!response.ok) throw new Error('this copy of the site was built without it.');
  return new Uint8Array(await response.arrayBuffer());
}

async function run() {
  /** @type {Result} */
  const result = { rows: [], device: `${navigator.hardwareConcurrency} cores · ${/(Firefox|Edg|Chrome|Version)\/[\d.]+/.exec(navigator.userAgent)?.[0] ?? 'a browser'}`, date: new Date().toISOString().slice(0, 10) };
  const theirs = await peer();
  $('#no-peer').replaceChildren(...(theirs ? [] : [unsupported(
    'onnxruntime-web is not beside this site, or you are offline: only this engine is measured.',
    'A build of the site in a checkout with npm packages has it.')]));
  for (const [n, model] of MODELS.entries()) {
    status.busy(`${model.name}: ${n + 1} of ${MODELS.length}`);
    const row = await load(model).then((bytes) => measure(oneThread, theirs, model, bytes)).catch((error) => {
      $('#skipped').append(make('li', {}, `${model.name}: ${messageOf(error)}`));
      return null;
    });
    if (row) result.rows.push(row);
    show(result);
  }
  writeState(result);
  await flushState();
  status.done('Measured. The address of this page holds the result: copy the link to share it.');
}

/** This engine on one thread, like its peer. */
const oneThread = {
  Tensor: ort.Tensor,
  InferenceSession: { create: (/** @type {Uint8Array} */ bytes, /** @type {object} */ options) => ort.InferenceSession.create(bytes, { ...options, intraOpNumThreads: 1 }) },
};

const button = /** @type {HTMLButtonElement} */ ($('#measure'));
button.addEventListener('click', async () => {
  button.disabled = true;
  $('#skipped').replaceChildren();
  await run().catch((error) => status.failed(error));
  button.disabled = false;
});
const stored = await readState();
if (Array.isArray(stored?.rows)) {
  show(stored);
  status.done('A result that somebody shared. Measure to see yours.');
} else status.done('Ready. It takes a minute or two.');

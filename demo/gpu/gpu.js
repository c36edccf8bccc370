// Measures this browser's GPU, case by case, and shows a report that can be kept, shared and compared.

import * as ort from 'pyruntime';
import { $, duration, make, messageOf, Status } from '../common.js';
import { aboutGpu, findGpu, nameOf } from '../lib/gpu.js';
import { readState, writeState } from '../lib/url_state.js';
import { link, unsupported } from '../lib/unsupported.js';
import { measureCase, measureNetwork, settings, Stopped } from './measure.js';
import { draw } from './picture.js';
import { measurePeaks } from './probes.js';
import { emptyReport, FORMAT, HALF, settle, VERSION } from './report.js';

/** @import { Case, Entry, Network, Report } from './report.js' */
/** @typedef {{ work: string, probes: any, cases: Case[], models: Case[] }} Table */

const status = new Status($('#status'));
const [measureButton, stopButton] = ['#measure', '#stop'].map((id) => /** @type {HTMLButtonElement} */ ($(id)));
const progress = /** @type {HTMLProgressElement} */ ($('#progress'));
const options = new URLSearchParams(location.search); // only: of which names (a regular expression); tune: 0 or 1, whether to tune schedules
const adapterOptions = /** @type {const} */ ({ powerPreference: 'high-performance' });
ort.env.webgpu.powerPreference = adapterOptions.powerPreference;
/** @type {Report | null} */
let report = null;
let stopping = new AbortController();

/** @param {number} rate a second @param {string} unit */
const giga = (rate, unit) => (rate ? `${(rate / 1e9).toFixed(rate < 1e10 ? 1 : 0)} ${unit}` : '–');

/** What the report says in short. @param {Report} told @returns {[string, string][]} */
function figures({ peaks, cases, slow }) {
  const done = cases.filter(({ share }) => share !== undefined).length;
  return [
    ['Multiply-adds, float32', giga(peaks.float32, 'GFLOP/s')],
    ['float16', giga(peaks.float16 ?? 0, 'GFLOP/s')],
    ['Copies in memory', giga(peaks.bandwidth, 'GB/s')],
    ['Cases at half of the limit or more', `${done - slow.length} of ${done}`],
  ];
}

/** @param {string} selector @param {[string, string][]} pairs */
function showPairs(selector, pairs) {
  $(selector).replaceChildren(...pairs.map(([title, value]) => make('div', {}, make('dt', {}, title), make('dd', {}, value))));
}

/** @param {string} text @param {string} more classes */
const number = (text, more = '') => make('td', { class: `number ${more}` }, text);

/** Of a rate in 10⁹ a second; "" for none. @param {number} rate */
const rateText = (rate) => (rate ? rate.toFixed(rate < 10 ? 2 : rate < 100 ? 1 : 0) : '');

/** @param {Entry} entry */
function rowOf({ name, share, bound, milliseconds: took, gflops, gbs, error, skipped, failed }) {
  const head = make('th', { scope: 'row' }, name);
  if (share === undefined) return make('tr', {}, head, make('td', { colspan: 4, class: 'soft' }, skipped ?? `failed: ${failed}`));
  const wrong = error === null || error < 0.01 ? '' : ', wrong result';
  const bar = make('div', { class: share < HALF ? 'share low' : 'share' }, make('i', { style: `--share: ${share}` }), make('span', {}, `${Math.round(100 * share)} % of ${bound}${wrong}`));
  return make('tr', {}, head, number(duration(took.median)), number(rateText(gflops), 'wide'), number(rateText(gbs), 'wide'), make('td', {}, bar));
}

/** @param {Network} network */
function networkRow({ name, webgpu, wasm, failed }) {
  const head = make('th', { scope: 'row' }, name);
  if (failed) return make('tr', {}, head, make('td', { colspan: 3, class: 'soft' }, `failed: ${failed}`));
  return make('tr', {}, head, number(duration(webgpu.median)), number(duration(wasm.median)), number(`${(wasm.median / webgpu.median).toFixed(2)}×`));
}

/** @param {Report} told */
function show(told) {
  $('#results').hidden = false;
  showPairs('#figures', figures(told));
  $('#rows').replaceChildren(...told.cases.map(rowOf));
  for (const id of ['#networks', '#networks-title']) $(id).hidden = !told.models.length;
  $('#network-rows').replaceChildren(...told.models.map(networkRow));
}

/** @param {Report} told */
function showAdapter({ adapter, clock, features, languageFeatures, limits }) {
  $('#adapter').hidden = false;
  showPairs('#about', [
    ['Name', nameOf(/** @type {any} */ (adapter)) || 'not told'],
    ['Computes on', adapter.software ? 'the CPU' : 'the GPU'],
    ['Half floats', features.includes('shader-f16') ? 'yes' : 'no'],
    ['Subgroups', features.includes('subgroups') ? 'yes' : 'no'],
    ['Clock', clock],
  ]);
  $('#features').textContent = [...features, ...languageFeatures].join(', ');
  $('#limits').replaceChildren(...Object.entries(limits).map(([name, value]) => make('tr', {}, make('th', { scope: 'row' }, name), number(String(value)))));
}

/** @param {Report} told */
const countOf = ({ cases, models }) => (cases.length + models.length === 1 ? 'one case' : `${cases.length + models.length} cases`);

/** A report for a link: without lists of kernels and schedules. @param {Report} told */
const shortened = (told) => JSON.parse(JSON.stringify(told, (key, value) => (key === 'kernels' || key === 'choices' ? undefined : value)));

/** Shows a report from a link, whose file has more. @param {any} linked @returns {boolean} whether it is one */
function showLinked(linked) {
  if (linked?.format !== FORMAT || linked.version !== VERSION) return false;
  report = linked;
  showAdapter(linked);
  show(linked);
  for (const id of ['#json', '#copy']) /** @type {HTMLButtonElement} */ ($(id)).disabled = true;
  return true;
}

/** Measures all cases, and shows the report as it grows. @param {Report} told @param {GPUAdapter} adapter @param {Table} table */
async function measureAll(told, adapter, table) {
  const only = new RegExp(options.get('only') ?? '');
  const [cases, models] = [table.cases, table.models].map((all) => all.filter(({ name }) => only.test(name)));
  status.busy('Copies and multiply-adds');
  told.peaks = await measurePeaks(adapter, table.probes);
  show(told);
  const how = { peaks: told.peaks, software: told.adapter.software, half: told.features.includes('shader-f16'), tune: told.settings.tune, signal: stopping.signal };
  const work = [
    ...cases.map((one) => ({ one, measure: async () => told.cases.push(await measureCase(one, how)) })),
    ...models.map((one) => ({ one, measure: async () => told.models.push(await measureNetwork(one, how)) })),
  ];
  for (const [n, { one, measure }] of work.entries()) {
    if (stopping.signal.aborted) throw new Stopped();
    status.busy(`${one.name}: ${n + 1} of ${work.length}`);
    Object.assign(progress, { value: n, max: work.length });
    await measure();
    settle(told);
    show(told);
  }
  told.complete = work.length === table.cases.length + table.models.length;
}

/** @param {Table} table @param {boolean} software */
async function run(table, software) {
  const adapter = await navigator.gpu.requestAdapter(adapterOptions);
  if (!adapter) throw new Error('This browser gives no WebGPU adapter any more.');
  stopping = new AbortController();
  const told = report = emptyReport(adapter, software, table.work, settings(options.has('tune') ? options.get('tune') === '1' : !software));
  showAdapter(told);
  for (const id of ['#json', '#copy', '#picture']) /** @type {HTMLButtonElement} */ ($(id)).disabled = false;
  try {
    await measureAll(told, adapter, table);
    status.done(`Measured ${countOf(told)}. Save the report, or copy its link.`);
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
    status.done(`Stopped after ${countOf(told)}. The report has what was measured.`);
  }
  writeState(shortened(told));
}

/** @param {Blob} blob @param {string} ending of its name */
function save(blob, ending) {
  const name = (nameOf(/** @type {any} */ (report?.adapter)) || 'gpu').toLowerCase().replace(/[^a-z0-9]+/g, '-');
  const href = URL.createObjectURL(blob);
  make('a', { href, download: `pyruntime-${name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

const textOf = () => JSON.stringify(report, null, 1);

/** @param {Event} event */
async function copy({ currentTarget }) {
  const button = /** @type {HTMLButtonElement} */ (currentTarget);
  const copied = await navigator.clipboard?.writeText(textOf()).then(() => true, () => false);
  status.done(copied ? 'The report is in the clipboard.' : 'The browser does not allow copies: save the report instead.');
  button.focus();
}

function savePicture() {
  if (report) draw(report, nameOf(/** @type {any} */ (report.adapter)) || 'A GPU', figures(report)).toBlob((blob) => blob && save(blob, 'png'), 'image/png');
}

/** The table of cases, which the build writes. @returns {Promise<Table | null>} */
async function load() {
  const response = await fetch('../models/gpu.json').catch(() => null); // null: offline
  return response?.ok ? response.json() : null;
}

/** @param {import('../lib/gpu.js').Found} found @param {boolean} hasTable */
function explain(found, hasTable) {
  const elsewhere = ['On the command line, ', make('code', {}, 'python -m bench gpu --report FILE.json'), ' measures the same without a browser. '];
  if (found.kind === 'none') {
    return [unsupported('This browser has no WebGPU here.', 'Chrome and Edge have it, Safari 26 and Firefox on Windows and macOS, too. ', ...elsewhere, link('../benchmark/index.html', 'The benchmark'), ' measures WebAssembly in this browser.')];
  }
  if (!hasTable) return [unsupported('This site was built without the cases, or you are offline.', ...elsewhere)];
  return found.kind === 'gpu' ? [] : [unsupported(aboutGpu(found), 'The report says so. Cases that would take long are left out.')];
}

const [found, table] = await Promise.all([findGpu(), load()]);
$('#state').replaceChildren(...explain(found, table !== null));
for (const [id, action] of /** @type {const} */ ([['#json', () => save(new Blob([textOf()], { type: 'application/json' }), 'json')], ['#copy', copy], ['#picture', savePicture]])) $(id).addEventListener('click', action);
stopButton.addEventListener('click', () => {
  stopping.abort();
  stopButton.disabled = true;
  status.busy('Stopping after the present run');
});
measureButton.addEventListener('click', async () => {
  [measureButton.disabled, stopButton.disabled, progress.hidden] = [true, false, false];
  stopButton.focus();
  await run(/** @type {Table} */ (table), found.kind === 'software').catch((error) => status.failed(messageOf(error)));
  [measureButton.disabled, stopButton.disabled, progress.hidden] = [false, true, true];
  measureButton.focus();
});
measureButton.disabled = found.kind === 'none' || !table;
if (showLinked(await readState())) status.done('A report that somebody shared. Measure to see yours.');
else status.done(measureButton.disabled ? 'Nothing can be measured here.' : 'Ready to measure: it takes a few minutes.');

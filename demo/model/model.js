// Opens a model of the visitor's and shows its graph, where its nodes run, how long they take, and their code.

import * as ort from 'pyruntime';
import { $, bytes, duration, make, onFiles, readyText, Status } from '../common.js';
import { checker, drawer, runner, tuner } from './cards.js';
import { GraphView } from './graph_view.js';
import { Inputs } from './inputs.js';
import { forget, keep, keepBeside, keptFiles } from './kept.js';
import { NodePanel } from './node_panel.js';
import { readGraph } from './onnx_graph.js';
import { chooseProvider } from './provider.js';
import * as report from './report.js';
import { takeAway } from './take_away.js';

/** name; model: read in place, whatever its size; tokenizer: its tokenizer.json; address: where the model is from;
 * isKept: whether the next visit can open it.
 * @typedef {{ name: string, model: Blob, external: { path: string, data: Blob }[], tokenizer?: Blob | null, address?: URL, isKept?: boolean }} Source */

const TOKENIZER = 'tokenizer.json';

const status = new Status($('#status'));
/** @type {ort.InferenceSession | null} */
let current = null;
/** Opens the model again with another provider or other schedules. @type {((choices?: ort.Tuned['choices']) => Promise<void>) | null} */
let reopen = null;
/** Reads texts by another tokenizer from now on. @type {((table: File) => Promise<unknown>) | null} */
let useTokenizer = null;
const provider = await chooseProvider();

/** @param {Source} source @param {ort.Tuned['choices']} [choices] of `tune` */
async function open(source, choices) {
  $('#report').hidden = true;
  reopen = (chosen) => open(source, chosen);
  try {
    await current?.release();
    current = null;
    const start = performance.now();
    const options = { onProgress: status.progress, externalData: source.external, executionProviders: provider.value.split(','), choices };
    current = await ort.InferenceSession.create(/** @type {any} */ (source.model), options);
    status.done(`${source.name}, ${bytes(source.model.size)}: ${readyText(current.timings)} · total ${duration(performance.now() - start)}`);
    await show(current, source);
  } catch (error) {
    status.failed(error);
  }
}

/** @param {...HTMLElement} cards */
const pair = (...cards) => make('div', { class: 'pair' }, ...cards);

/** @param {ort.InferenceSession} session @param {Source} source */
async function show(session, source) {
  const inputs = new Inputs(session);
  await readTexts(inputs, source);
  const feeds = () => inputs.feeds();
  const graph = await graphCard(session, source, feeds);
  const details = make('div');
  const refresh = async () => details.replaceChildren(await compiledCards(session));
  await refresh();
  $('#report').hidden = false;
  $('#report').replaceChildren(
    ...(graph ? [graph.card] : []),
    runner(session, inputs, async (timings) => {
      await refresh();
      if (graph) await graph.refresh(timings);
    }),
    report.card('Take it away', takeAway({ session, name: source.name, file: source.external.length ? null : source.model, feeds })),
    pair(report.signature('Inputs', session.inputMetadata), report.signature('Outputs', session.outputMetadata)),
    details,
    ...(provider.value.startsWith('webgpu') ? [checker(session, inputs)] : []),
    drawer(session, inputs),
    tuner(session, inputs, (chosen) => reopen?.(chosen)),
  );
  if (graph) await graph.refresh([]);
}

/** Gives the field for text its tokenizer. @param {Inputs} inputs @param {Source} source */
async function readTexts({ text }, source) {
  useTokenizer = null;
  if (!text) return;
  text.onTokenizer = async (table) => {
    source.tokenizer = table; // for when the model is opened again
    if (!source.isKept) return;
    await keepBeside(new File([table], TOKENIZER));
    showKept(await keptFiles());
  };
  useTokenizer = async (table) => await text.use(table) && text.onTokenizer(table);
  source.tokenizer ??= await tokenizerBeside(source);
  if (source.tokenizer) await text.use(source.tokenizer);
}

/** The tokenizer.json in the folder of a model on a server; Hugging Face has it above the folder "onnx". @param {Source} source */
async function tokenizerBeside({ address }) {
  const folders = address ? ['.', ...(address.pathname.includes('/onnx/') ? ['..'] : [])] : [];
  for (const folder of folders) {
    const response = await fetch(new URL(`${folder}/${TOKENIZER}`, address)).catch(() => null);
    const table = response?.ok && await response.blob();
    if (table && !table.type.includes('html')) return table; // some servers answer with their first page
  }
  return null;
}

/** The graph and what is known of the chosen node; null for files without a graph. @param {ort.InferenceSession} session @param {Source} source @param {() => ort.InferenceSession.FeedsType} feeds */
async function graphCard(session, source, feeds) {
  const graph = await readGraph(source.model).catch(() => null);
  if (!graph?.nodes.length) return null;
  const panel = new NodePanel(session, graph, feeds);
  const view = new GraphView(graph, (group) => panel.show(group));
  const refresh = async (/** @type {readonly ort.KernelTiming[]} */ timings) => {
    const explanation = await session.explain().catch(() => null); // some models are compiled when they first run
    await view.show(explanation?.nodes ?? []).catch((error) => view.canvas.replaceChildren(make('p', {}, error.message)));
    view.time(timings);
    panel.times = view.times;
    if (timings.length) view.chooseSlowest();
  };
  return { card: report.card('Graph', make('div', { class: 'graph-card' }, view.node, panel.node)), refresh };
}

/** Cards about the compiled model. Some models are compiled only when they first run. @param {ort.InferenceSession} session */
async function compiledCards(session) {
  try {
    const [explanation, memory] = await Promise.all([session.explain(), session.memory()]);
    const right = make('div', { style: 'display: grid; gap: 1.1rem' },
      report.card('Where it runs', report.placement(explanation)), report.card('Memory', report.memory(memory)));
    const nodes = report.card('Nodes', report.nodes(explanation));
    return make('div', { style: 'display: grid; gap: 1.1rem' }, pair(report.card('Operators', report.operators(explanation)), right), nodes);
  } catch (error) {
    if (!(error instanceof ort.SessionFailed)) throw error;
    return report.card('Operators', make('p', { class: 'soft' }, 'This model is compiled at its first run, because its Program depends on the inputs.'));
  }
}

/**
 * Opens the files that a visitor chose, and keeps them for the next visit.
 * @param {File[]} files @param {boolean} [isKept] whether they are the kept ones, which must stay as they are while the model is open
 */
async function take(files, isKept = false) {
  const withSuffix = (/** @type {string} */ end) => files.find(({ name }) => name.endsWith(end));
  const tokenizer = files.find(({ name }) => name === TOKENIZER);
  const others = files.filter((file) => file !== tokenizer);
  const model = withSuffix('.pyrt') ?? withSuffix('.onnx') ?? others[0]; // a Program can come with the model that has its weights
  if (!model) return tokenizer && takeTokenizer(tokenizer);
  setAddress('');
  const external = others.filter((file) => file !== model).map((data) => ({ path: data.name, data }));
  /** @type {Source} */
  const source = { name: model.name, model, external, tokenizer, isKept };
  await open(source);
  if (!current || isKept) return;
  source.isKept = await keep(files);
  if (source.isKept) showKept(files);
}

/** A tokenizer.json without a model is for the open one. @param {File} tokenizer */
async function takeTokenizer(tokenizer) {
  if (useTokenizer) await useTokenizer(tokenizer);
  else status.failed(current ? 'This model has no input for token ids, so it needs no tokenizer.json' : 'Choose tokenizer.json together with its model, or after it');
}

/** @param {string} model in the page's address, "" for none */
function setAddress(model) {
  const url = new URL(location.href);
  url.search = model && `?${new URLSearchParams({ model })}`;
  history.replaceState(null, '', url);
}

/** @param {string} address */
async function openAddress(address) {
  setAddress(address);
  try {
    status.busy(`Fetching ${address}`);
    const response = await fetch(address);
    if (!response.ok) throw new Error(`${address} cannot be fetched: ${response.status}`);
    const url = new URL(address, document.baseURI);
    await open({ name: url.pathname.split('/').at(-1) || address, model: await response.blob(), external: [], address: url });
  } catch (error) {
    status.failed(error);
  }
}

/** @param {File[]} files */
function showKept(files) {
  const button = make('button', { id: 'kept' }, `Last one: ${files.map(({ name }) => name).join(', ')}`);
  const drop = make('button', { class: 'plain', 'aria-label': 'Forget the last model' }, '✕');
  button.addEventListener('click', async () => take(await keptFiles(), true));
  drop.addEventListener('click', () => {
    forget();
    $('#kept-models').replaceChildren();
  });
  $('#kept-models').replaceChildren(button, drop);
}

provider.addEventListener('change', () => reopen?.());
onFiles($('#drop'), (files) => take(files));
for (const button of document.querySelectorAll('[data-example]')) {
  button.addEventListener('click', () => openAddress(button.getAttribute('data-example') ?? ''));
}
const kept = await keptFiles();
if (kept.length) showKept(kept);
const asked = new URLSearchParams(location.search).get('model');
if (asked) await openAddress(asked);
else status.done('Ready. The engine starts when you open a model.');

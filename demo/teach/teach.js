// Learns the visitor's symbols from a few drawings of each.

import { $, messageOf, onFiles } from '../common.js';
import { Pad } from '../digits/pad.js';
import { Classes } from '../lib/classes.js';
import { button, ClassifierPage, say } from '../lib/classifier_page.js';
import { Learner } from '../lib/learner.js';
import { download, shareAddress } from '../lib/take_away.js';
import { flushState, readState, writeState } from '../lib/url_state.js';
import { drawingOf, tensorOf, thumbnail } from './drawings.js';
import { fromPlain, toPlain } from './symbols.js';

const CLASSES = 12; // of the network
const TESTS_EVERY = 120; // ms
const TASK = {
  model: 'network.onnx', input: 'drawing', output: 'logits', batch: 32, tensorOf,
  options: { loss: { crossEntropy: 'logits' }, optimizer: { adamW: { rate: 0.002 } } },
};

/** @type {import('./symbols.js').Symbols} */
const symbols = new Classes(CLASSES);

const page = new ClassifierPage(symbols, {
  name: 'teach',
  need: 'Needs drawings of two symbols.',
  picture: thumbnail,
  current: () => (pad.strokes.length ? drawingOf(pad.strokes) : null),
  pack: async () => symbols.all.map(({ name, examples, slot }) => ({ name, drawings: examples, slot })),
  unpack: (found) => fromPlain(symbols, found),
  changed: () => {
    showAdd();
    writeState(symbols.all.length ? toPlain(symbols) : null);
  },
});

const pad = new Pad($('#pad'), () => {
  showAdd();
  page.guess().catch((error) => page.status.failed(error));
});

function showAdd() {
  const { chosen } = page.list;
  button('add').textContent = chosen ? `Add to “${chosen.name}”` : 'Add';
  button('add').disabled = !chosen || !pad.strokes.length;
}

function addDrawing() {
  const { chosen } = page.list;
  if (!chosen || !pad.strokes.length) return;
  chosen.examples.push(drawingOf(pad.strokes));
  pad.clear();
  page.list.show();
  page.changed();
}

/** @param {unknown} found */
const openDrawings = (found) => page.open(() => fromPlain(symbols, found));

async function main() {
  page.connect({
    add: addDrawing,
    clear: () => pad.clear(),
    new: () => page.list.add(`Symbol ${symbols.all.length + 1}`),
    samples: async () => openDrawings(await (await fetch('samples.json')).json()),
    share: async () => {
      await flushState();
      say(await shareAddress('My symbols'));
    },
    download: () => page.download('symbols.onnx'),
    drawings: () => download('drawings.json', JSON.stringify(toPlain(symbols)), 'application/json'),
  });
  $('#pad').addEventListener('keydown', (event) => { if (/** @type {KeyboardEvent} */ (event).key === 'Enter') addDrawing(); });
  onFiles(/** @type {HTMLElement} */ ($('#file').parentElement), async ([file]) => {
    try { await openDrawings(JSON.parse(await file.text())); } catch (error) { say(`${file.name}: ${messageOf(error)}`); }
  });
  const linked = await readState();
  try {
    fromPlain(symbols, linked ?? []);
  } catch (error) {
    say(`The link: ${messageOf(error)}`);
  }
  page.list.show();
  page.changed();
  try {
    page.begin(await Learner.open(TASK, symbols, page.status.progress), TESTS_EVERY);
    const plain = (/** @type {any} */ classes) => JSON.stringify(classes, (key, value) => (key === 'slot' ? undefined : value));
    await page.restore((classes) => !linked || plain(classes) === plain(linked)); // a link's drawings win
    page.status.done(symbols.areEnough ? 'Ready to learn' : 'Ready. Add your symbols, or load the samples.');
  } catch (error) {
    page.status.failed(error);
  }
  page.changed();
}

main();

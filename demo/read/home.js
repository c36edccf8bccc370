// The front page: reads a photograph, shows its lines, the time and what was downloaded.

import { $, bytes, duration, make, onFiles, quantile, readyText, Status } from '../common.js';
import { codeTabs } from '../lib/code_dialog.js';
import { connectTabs } from '../lib/tabs.js';
import { isThere, offlineError } from '../lib/networks.js';
import { readState, writeState } from '../lib/url_state.js';
import { link, unsupported } from '../lib/unsupported.js';
import { Downloads } from './downloads.js';
import { Reader } from './reader.js';

const REPEATS = 4; // runs after the first, whose time does not count: browsers optimise the code meanwhile
const FIRST = 'read/cafe.jpg';
const CREDITS = {
  [FIRST]: 'Photograph: Rachel Michetti (CC0), with a menu that we added.',
  'read/page.jpg': 'Adventures of Huckleberry Finn, 1885. Scan: Project Gutenberg, public domain.',
};

/** @typedef {Awaited<ReturnType<Reader['read']>>} Lines */

const status = new Status($('#status'));
/** Pictures are read one after another, and only the latest one is shown. */
let latest = 0;
/** @type {Promise<unknown>} */
let before = Promise.resolve();

/** @param {ImageBitmap} picture */
function showPicture(picture) {
  const canvas = /** @type {HTMLCanvasElement} */ ($('#picture'));
  Object.assign(canvas, { width: picture.width, height: picture.height });
  canvas.getContext('2d')?.drawImage(picture, 0, 0);
  $('#regions').setAttribute('viewBox', `0 0 ${picture.width} ${picture.height}`);
  $('#regions').replaceChildren();
  $('#lines').replaceChildren();
  for (const id of ['#time', '#count']) $(id).textContent = '–';
}

/** The lines as text and as regions of the picture. @param {Lines} lines */
function showLines(lines) {
  const regions = lines.map(({ corners }) => {
    const polygon = document.createElementNS('http://www.w3.org/2000/svg', 'polygon');
    polygon.setAttribute('points', corners.map((corner) => corner.map(Math.round).join()).join(' '));
    return polygon;
  });
  const items = lines.map(({ text, confidence }, i) => {
    const item = make('li', {}, text, make('span', { title: 'confidence' }, `${Math.round(100 * confidence)}\u00a0%`));
    item.addEventListener('pointerenter', () => regions[i].classList.add('over'));
    item.addEventListener('pointerleave', () => regions[i].classList.remove('over'));
    return item;
  });
  $('#regions').replaceChildren(...regions);
  $('#lines').replaceChildren(...(items.length ? items : [make('li', { class: 'soft' }, 'No text found.')]));
  $('#count').textContent = String(lines.length);
}

/** @param {Reader} reader @param {Blob} file @param {number} turn @param {Downloads} downloads */
async function read(reader, file, turn, downloads) {
  const picture = await createImageBitmap(file);
  if (turn !== latest) return;
  showPicture(picture);
  status.busy('Reading');
  showLines(await reader.read(picture));
  downloads.show();
  status.busy('Read. Measuring the time');
  /** @type {number[]} */
  const times = [];
  while (times.length < REPEATS && turn === latest) {
    const start = performance.now();
    await reader.read(picture);
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done)); // the page stays responsive
  }
  if (turn === latest) $('#time').textContent = duration(quantile(times, 0.5));
  picture.close();
  const { detection, recognition } = reader;
  if (turn === latest) status.done(`${readyText({ ...detection.timings, compile: detection.timings.compile + recognition.timings.compile, init: detection.timings.init + recognition.timings.init })} · both networks`);
}

/** @param {Promise<Reader>} opening @param {() => Promise<Blob> | Blob} file @param {Downloads} downloads */
function request(opening, file, downloads) {
  const turn = ++latest;
  before = before.then(async () => { if (turn === latest) await read(await opening, await file(), turn, downloads); }).catch((error) => status.failed(offlineError(error)));
}

/** The page's own lines, when the tab is first opened. */
function connectCode() {
  connectTabs();
  const files = ['reader.js', 'regions.js', 'rectangle.js'].map((name) => ({ name, url: new URL(name, import.meta.url).href }));
  $('#tab-code').addEventListener('click', () => $('#view-code-tab').replaceChildren(codeTabs(files)), { once: true });
}

/** Cards of the other pages. */
function showPages() {
  const cards = [...document.querySelectorAll('#menu a')].map((page) => make('a', { class: 'card', href: page.getAttribute('href') ?? '' },
    make('h3', {}, page.textContent ?? ''), make('p', { class: 'soft small' }, page.getAttribute('title') ?? '')));
  $('#pages').replaceChildren(...cards);
}

async function main() {
  connectCode();
  showPages();
  if (!await isThere('models/ocr/recognition.onnx')) {
    $('#status').replaceWith(unsupported('This copy of the site was built without the networks that read text.',
      'Its builder gets them by ', make('code', {}, 'make serve'), ' or ', make('code', {}, 'python -m scripts.site_models --download'), '. The other pages work, such as ', link('digits/index.html', 'drawing a digit'), '.'));
    return;
  }
  const downloads = await Downloads.begin();
  const opening = Reader.open((progress, address) => {
    status.progress(progress);
    downloads.note(progress, address);
  });
  const sample = (/** @type {keyof typeof CREDITS} */ address) => {
    $('#credit').textContent = CREDITS[address];
    writeState(address === FIRST ? null : address);
    request(opening, () => fetch(address).then((response) => response.blob()), downloads);
  };
  onFiles($('#drop'), ([file]) => {
    $('#credit').textContent = file.name;
    writeState(null);
    request(opening, () => file, downloads);
  });
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-picture]'))) {
    button.addEventListener('click', () => sample(/** @type {keyof typeof CREDITS} */ (button.dataset.picture)));
  }
  const linked = await readState();
  sample(Object.hasOwn(CREDITS, linked) ? linked : FIRST);
}

main();

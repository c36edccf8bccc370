// The last layers of a picture net learn the visitor's classes from photographs.

import { $, make, messageOf, onFiles } from '../common.js';
import { Classes } from '../lib/classes.js';
import { button, ClassifierPage, say } from '../lib/classifier_page.js';
import { Learner } from '../lib/learner.js';
import { isThere, offlineError } from '../lib/networks.js';
import { link, unsupported } from '../lib/unsupported.js';
import { readState, writeState } from '../lib/url_state.js';
import { openPhotograph, pieceOf, shownCopy, squareOf, tensorOf, toFile } from './photographs.js';

const CLASSES = 6; // of the network
const NETWORK = '../models/pictures.onnx';
// Only the last two layers learn; all layers before them keep what they learned from ImageNet.
const TASK = {
  model: NETWORK, input: 'picture', output: 'scores', batch: 8, tensorOf,
  options: { loss: { crossEntropy: 'scores' }, optimizer: { adamW: { rate: 0.001 } }, trainable: 'head.*', cache: true },
};
const TESTS_EVERY = 1500; // ms
const LOOKS_EVERY = 250; // ms, while the camera is on
const SAMPLES = { names: ['brick', 'grass', 'gravel'], columns: 6, side: 128 }; // in samples.jpg, a row for each

/** @typedef {import('./photographs.js').Photograph} Photograph */
/** @typedef {{ name: string, slot: number, files: Blob[] }} Stored */

/** @type {Classes<Photograph>} */
const classes = new Classes(CLASSES);
const video = /** @type {HTMLVideoElement} */ ($('#video'));
/** The photograph that the network looks at. @type {Photograph | null} */
let current = null;

const page = new ClassifierPage(classes, {
  name: 'yours',
  need: 'Needs photographs of two classes.',
  picture: shownCopy,
  current: () => current,
  pack: () => Promise.all(classes.all.map(async ({ name, slot, examples }) => ({ name, slot, files: await Promise.all(examples.map(toFile)) }))),
  unpack: async (/** @type {Stored[]} */ found) => {
    classes.all = [];
    for (const { name, slot, files } of found) classes.add(name, await Promise.all(files.map(openPhotograph)), slot);
  },
  changed: () => {
    button('take-picture').textContent = page.list.chosen ? `Add to “${page.list.chosen.name}”` : 'Add';
    button('take-picture').disabled = !page.list.chosen;
    writeState(classes.all.length ? classes.names : null);
  },
});

/** @param {Photograph} photograph */
async function show(photograph) {
  current = photograph;
  $('#shown').replaceWith(Object.assign(shownCopy(photograph), { id: 'shown' }));
  $('#shown').setAttribute('role', 'img');
  $('#shown').setAttribute('aria-label', 'The latest photograph');
  $('#shown').hidden = !video.hidden;
  await page.guess();
}

/** Adds to the chosen class, or to a first one. @param {Photograph[]} photographs */
async function add(photographs) {
  if (!page.list.chosen) page.list.add('Class 1');
  page.list.chosen?.examples.push(...photographs);
  page.list.show();
  page.changed();
  await show(photographs[photographs.length - 1]);
}

/** @param {File[]} files */
async function addFiles(files) {
  const opened = await Promise.allSettled(files.map(openPhotograph));
  const photographs = opened.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
  if (photographs.length) await add(photographs);
  const failed = files.filter((_, n) => opened[n].status === 'rejected').map(({ name }) => name);
  if (failed.length) say(`The browser cannot read ${failed.join(', ')} as a picture.`);
}

async function loadSamples() {
  const { names, columns, side } = SAMPLES;
  const sheet = await createImageBitmap(await (await fetch('samples.jpg')).blob());
  await page.open(() => {
    classes.all = [];
    names.forEach((name, row) => classes.add(name, Array.from({ length: columns }, (_, n) => pieceOf(sheet, n * side, row * side, side))));
  });
  sheet.close();
  await show(classes.all[0].examples[2]); // a held-out one
}

const frame = () => squareOf(video, video.videoWidth, video.videoHeight);

async function switchCamera() {
  if (video.hidden) {
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } });
    await video.play();
  } else {
    for (const track of /** @type {MediaStream} */ (video.srcObject).getTracks()) track.stop();
  }
  video.hidden = !video.hidden;
  $('#shown').hidden = !video.hidden;
  button('take-picture').hidden = video.hidden;
  button('camera').textContent = video.hidden ? 'Use the camera' : 'Stop the camera';
  while (!video.hidden) {
    if (!page.ready?.trainer.isRunning) await show(frame());
    await new Promise((done) => setTimeout(done, LOOKS_EVERY));
  }
}

function connect() {
  page.connect({
    new: () => page.list.add(`Class ${classes.all.length + 1}`),
    samples: loadSamples,
    camera: switchCamera,
    'take-picture': () => add([frame()]),
    download: () => page.download('pictures.onnx'),
  });
  const tryInput = /** @type {HTMLInputElement} */ ($('#try'));
  tryInput.addEventListener('change', async () => {
    try { if (tryInput.files?.[0]) await show(await openPhotograph(tryInput.files[0])); } catch (error) { say(messageOf(error)); }
    tryInput.value = '';
  });
  onFiles($('#drop'), (files) => addFiles(files).catch((error) => say(messageOf(error))));
}

async function main() {
  if (!await isThere(NETWORK)) {
    $('#status').replaceWith(unsupported('This copy of the site was built without the network for pictures.',
      'Its builder gets it by ', make('code', {}, 'make serve'), ' or ', make('code', {}, 'python -m scripts.site_models --download'), '. Meanwhile, ', link('../teach/index.html', 'teach a network your symbols'), '.'));
    return;
  }
  connect();
  if (!navigator.mediaDevices) {
    button('camera').disabled = true;
    $('#status').after(unsupported('This page may not use a camera: browsers allow it over HTTPS and on localhost only.', 'Photographs from files work.'));
  }
  const linked = await readState();
  if (Array.isArray(linked)) for (const name of linked.slice(0, CLASSES)) classes.add(String(name));
  page.list.show();
  page.changed();
  try {
    page.begin(await Learner.open(TASK, classes, page.status.progress), TESTS_EVERY);
    await page.restore((/** @type {Stored[]} */ found) => !linked || JSON.stringify(found.map(({ name }) => name)) === JSON.stringify(linked));
    page.status.done(classes.areEnough ? 'Ready to learn' : 'Ready. Add photographs of two classes, or load the samples.');
  } catch (error) {
    page.status.failed(offlineError(error));
  }
  page.changed();
}

main();

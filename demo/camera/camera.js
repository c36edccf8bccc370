// Classifies a digit in the camera's or a generated picture. On the page's own GPU texture, tensor and network stay there, and
// ten probabilities are read back; the page counts the bytes that cross. Without a GPU all of it runs on the CPU.

import * as ort from 'pyruntime';
import { $, duration, messageOf, readyText, Status } from '../common.js';
import { showBars } from '../digits/bars.js';
import { aboutGpu, findGpu } from '../lib/gpu.js';
import { SteadyTime } from '../lib/steady_time.js';
import { readState, writeState } from '../lib/url_state.js';
import { link, unsupported } from '../lib/unsupported.js';
import { PictureTensor } from './picture.js';
import { pictureTensor } from './pixels.js';

const STORAGE = 0x80; // GPUBufferUsage.STORAGE
const SIDE = 280; // pixels of a generated picture
const WARM_UP = 4; // pictures

/** pixels: 28 x 28, 0 to 255. @typedef {{ label: number, pixels: number[] }} Sample */

/** Bytes that scripts, including the engine, read from and wrote to storage buffers. Kernel parameters are not counted. */
const traffic = { read: 0, written: 0 };

function count() {
  const { mapAsync } = GPUBuffer.prototype;
  GPUBuffer.prototype.mapAsync = /** @this {GPUBuffer} */ function (mode, offset = 0, size = this.size - offset) {
    traffic.read += size;
    return mapAsync.call(this, mode, offset, size);
  };
  const { writeBuffer } = GPUQueue.prototype;
  GPUQueue.prototype.writeBuffer = function (buffer, at, data, ...rest) {
    if (buffer.usage & STORAGE) traffic.written += data.byteLength;
    return writeBuffer.call(this, buffer, at, data, ...rest);
  };
}

class Reader {
  /** @param {ort.InferenceSession} session @param {PictureTensor | null} picture null: the session runs on the CPU */
  constructor(session, picture) {
    this.session = session;
    this.picture = picture;
    this.time = new SteadyTime(WARM_UP);
    this.count = 0;
  }

  /** @param {HTMLCanvasElement | HTMLVideoElement} source @param {number} width @param {number} height */
  async read(source, width, height) {
    Object.assign(traffic, { read: 0, written: 0 });
    const start = performance.now();
    const image = this.picture ? await this.picture.take(source, width, height) : pictureTensor(source, width, height);
    const { probabilities } = await this.session.run({ image });
    showBars(/** @type {Float32Array} */ (await probabilities.getData(true)));
    const median = this.time.add(performance.now() - start);
    $('#read').textContent = `${traffic.read}`;
    $('#written').textContent = `${traffic.written}`;
    if (median !== null) $('#time').textContent = duration(median);
    $('#count').textContent = `${++this.count}`;
  }
}

/** A sample of the data set, 8 x 8 cells of dark ink on light paper. @param {HTMLCanvasElement} canvas @param {Sample} sample */
function paint(canvas, { pixels, label }) {
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  context.fillStyle = '#f1ead8';
  context.fillRect(0, 0, SIDE, SIDE);
  const middle = (/** @type {number} */ cell) => Math.floor(3 + ((cell + 0.5) * 22) / 8); // pixel in the sample's 28 x 28
  const [start, step] = [(3 / 28) * SIDE, ((22 / 28) * SIDE) / 8];
  for (let cell = 0; cell < 64; cell++) {
    const [x, y] = [cell % 8, Math.floor(cell / 8)];
    context.fillStyle = `rgb(20 30 60 / ${pixels[28 * middle(y) + middle(x)] / 255})`;
    context.fillRect(start + x * step, start + y * step, step, step);
  }
  canvas.dataset.label = String(label);
}

class Camera {
  /** @param {Status} status */
  constructor(status) {
    this.status = status;
    this.video = /** @type {HTMLVideoElement} */ ($('#video'));
    /** @type {Reader | null} */
    this.reader = null;
  }

  async start() {
    const { video, status } = this;
    status.busy('Waiting for the camera. The browser may ask you to allow it');
    try {
      video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } });
      await video.play();
    } catch (error) {
      status.failed(new Error(`No camera: ${messageOf(error)} The generated pictures work without one.`));
      return;
    }
    video.hidden = false;
    $('#picture').hidden = true;
    status.done('The camera is on');
    this.next();
  }

  next() {
    this.frame().catch((error) => this.status.failed(error));
  }

  async frame() {
    const { video, reader } = this;
    if (video.hidden || !reader) return;
    await reader.read(video, video.videoWidth, video.videoHeight);
    if (video.requestVideoFrameCallback) video.requestVideoFrameCallback(() => this.next());
    else requestAnimationFrame(() => this.next());
  }

  stop() {
    for (const track of /** @type {MediaStream | null} */ (this.video.srcObject)?.getTracks() ?? []) track.stop();
    Object.assign(this.video, { srcObject: null, hidden: true });
    $('#picture').hidden = false;
  }
}

/** A session in the chosen place. @param {string} place wasm or webgpu @param {Status} status */
async function openReader(place, status) {
  const onGpu = place === 'webgpu';
  const options = { executionProviders: [place], onProgress: status.progress, ...(onGpu ? { preferredOutputLocation: /** @type {const} */ ('gpu-buffer') } : {}) };
  const session = await ort.InferenceSession.create('../digits/digits.onnx', options);
  status.done(readyText(session.timings));
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('.traffic'))) node.hidden = !onGpu;
  return new Reader(session, onGpu ? new PictureTensor(await ort.env.webgpu.device) : null);
}

/** The choice of the place: the GPU if there is a real one. */
async function places() {
  const gpu = await findGpu();
  const choice = /** @type {HTMLSelectElement} */ ($('#place'));
  if (gpu.kind !== 'none') choice.append(new Option(gpu.kind === 'gpu' ? 'the GPU' : `software WebGPU: ${gpu.name} (slow)`, 'webgpu'));
  choice.value = gpu.kind === 'gpu' ? 'webgpu' : 'wasm';
  $('#about-place').textContent = aboutGpu(gpu);
  return choice;
}

/** Cameras need a page of a trustworthy origin. @param {boolean} isReady */
function enableButtons(isReady) {
  /** @type {HTMLButtonElement} */ ($('#next')).disabled = !isReady;
  /** @type {HTMLButtonElement} */ ($('#camera')).disabled = !isReady || !navigator.mediaDevices;
}

async function main() {
  const status = new Status($('#status'));
  try {
    const [choice, samples, linked] = await Promise.all([places(), fetch('../digits/samples.json').then((response) => response.json()), readState()]);
    const camera = new Camera(status);
    if (globalThis.GPUBuffer) count();
    let turn = Number.isInteger(linked) && linked >= 0 ? linked : 0;
    const next = async () => {
      camera.stop();
      const canvas = /** @type {HTMLCanvasElement} */ ($('#picture'));
      writeState(turn || null);
      paint(canvas, samples[turn++ % samples.length]);
      await camera.reader?.read(canvas, SIDE, SIDE).catch((error) => status.failed(error));
    };
    const open = async () => {
      enableButtons(false); // a released session reads nothing
      $('#count').textContent = '0';
      await camera.reader?.session.release();
      camera.reader = await openReader(choice.value, status);
      enableButtons(true);
      if (camera.video.hidden) await next();
    };
    await open();
    choice.addEventListener('change', () => open().catch((error) => status.failed(error)));
    $('#next').addEventListener('click', next);
    $('#camera').addEventListener('click', () => camera.start());
    if (navigator.mediaDevices) return;
    $('#status').after(unsupported('This page may not use a camera: browsers allow it over HTTPS and on localhost only.', 'The generated pictures work, and so does ', link('../digits/index.html', 'drawing a digit'), '.'));
  } catch (error) {
    status.failed(error);
  }
}

main();

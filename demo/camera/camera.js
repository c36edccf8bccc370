// Classifies a digit in the camera's or a generated picture on the page's own GPU: texture, tensor and network stay there,
// and ten probabilities are read back. Counts the bytes that cross.

import * as ort from 'pyruntime';
import { $, readyText, Status } from '../common.js';
import { showBars } from '../digits/bars.js';
import { PictureTensor } from './picture.js';

const STORAGE = 0x80; // GPUBufferUsage.STORAGE
const SIDE = 280; // pixels of a generated picture

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
  /** @param {ort.InferenceSession} session @param {PictureTensor} picture */
  constructor(session, picture) {
    this.session = session;
    this.picture = picture;
    this.count = 0;
  }

  /** @param {HTMLCanvasElement | ImageBitmap} source @param {number} width @param {number} height */
  async read(source, width, height) {
    Object.assign(traffic, { read: 0, written: 0 });
    const { probabilities } = await this.session.run({ image: this.picture.take(source, width, height) });
    showBars(/** @type {Float32Array} */ (await probabilities.getData(true)));
    $('#read').textContent = `${traffic.read}`;
    $('#written').textContent = `${traffic.written}`;
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

/** @param {Reader} reader @param {Status} status */
async function watch(reader, status) {
  const video = /** @type {HTMLVideoElement} */ ($('#video'));
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: 'environment' } });
    await video.play();
  } catch (error) {
    return status.failed(new Error(`No camera: ${/** @type {Error} */ (error).message}`));
  }
  video.hidden = false;
  $('#picture').hidden = true;
  const frame = async () => {
    if (video.hidden) return;
    const picture = await createImageBitmap(video); // browsers without a GPU process cannot copy video into a texture
    await reader.read(picture, picture.width, picture.height);
    picture.close();
    video.requestVideoFrameCallback(next);
  };
  const next = () => void frame().catch((error) => status.failed(error));
  next();
}

/** @param {Reader} reader @param {Status} status */
async function pictures(reader, status) {
  const all = /** @type {Sample[]} */ (await (await fetch('../digits/samples.json')).json());
  const canvas = /** @type {HTMLCanvasElement} */ ($('#picture'));
  const video = /** @type {HTMLVideoElement} */ ($('#video'));
  let turn = 0;
  return async () => {
    for (const track of /** @type {MediaStream | null} */ (video.srcObject)?.getTracks() ?? []) track.stop();
    Object.assign(video, { srcObject: null, hidden: true });
    canvas.hidden = false;
    paint(canvas, all[turn++ % all.length]);
    await reader.read(canvas, SIDE, SIDE).catch((error) => status.failed(error));
  };
}

async function main() {
  const status = new Status($('#status'));
  try {
    const options = { executionProviders: ['webgpu'], preferredOutputLocation: /** @type {const} */ ('gpu-buffer'), onProgress: status.progress };
    const session = await ort.InferenceSession.create('../digits/digits.onnx', options);
    count();
    const reader = new Reader(session, new PictureTensor(await ort.env.webgpu.device));
    const next = await pictures(reader, status);
    await next();
    $('#next').addEventListener('click', next);
    $('#camera').addEventListener('click', () => watch(reader, status));
    for (const button of document.querySelectorAll('button')) button.disabled = false;
    status.done(readyText(session.timings));
  } catch (error) {
    status.failed(error);
  }
}

main();

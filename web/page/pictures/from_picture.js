// Tensors from textures, video frames and other pictures, which stay on the GPU.

import { InvalidInput } from '../../common/errors.js';
import { TEXTURE } from '../../gpu/flags.js';
import { onGpu } from '../tensors/gpu_tensors.js';
import { pipelineOf, stateOf, submitChecked } from './gpu_state.js';
import { channelsOf, checkNames, conversion, dimsOf, PER_WORD, whole } from './picture_options.js';
import { fromPictureShader, parameters, ROW, WIDTH } from './shaders.js';

/** @import { Gpu } from '../../gpu/device.js' */
/** @import { Conversion, PictureOptions } from './picture_options.js' */
/** @typedef {HTMLVideoElement | VideoFrame} Video */
/** Other pictures; a text is an address. @typedef {Exclude<CanvasImageSource, SVGImageElement | Video> | ImageData | Blob | string} Image */
/** @typedef {GPUTexture | GPUExternalTexture | Video | Image} Picture */
/** How a shader reads a picture. @typedef {{ texture: 'texture_external' | 'texture_2d<f32>', isWhole: boolean }} Access */

/** Formats of textures that are read, by whether their levels are those of 8 bits. @type {Record<string, boolean>} */
const FORMATS = { rgba8unorm: true, bgra8unorm: true, rgb10a2unorm: false, rg11b10ufloat: false, rgba16float: false, rgba32float: false };
const BITS8 = /** @type {Access} */ ({ texture: 'texture_2d<f32>', isWhole: true });
const EXTERNAL = /** @type {Access} */ ({ texture: 'texture_external', isWhole: true });

/** Pictures that every browser copies as they are; the others become an ImageBitmap. */
const COPIED = ['HTMLCanvasElement', 'OffscreenCanvas', 'ImageBitmap'];

/** The name of a value's interface, such as GPUTexture. @param {unknown} value @returns {string} */
const kindOf = (value) => Object.prototype.toString.call(value).slice(8, -1);

/** @param {Gpu} gpu @param {Picture} source @param {PictureOptions} options */
export async function fromPicture(gpu, source, options) {
  checkNames(options, 'the conversion of a picture');
  const how = conversion(options, options.dataType ?? 'float32', options.tensorFormat ?? 'RGB');
  const kind = kindOf(source);
  if (kind === 'GPUTexture') return fromTexture(gpu, /** @type {GPUTexture} */ (source), options, how);
  if (kind === 'GPUExternalTexture') {
    const size = [whole('width', options.width, 1), whole('height', options.height, 1)];
    return converted(gpu, EXTERNAL, () => /** @type {GPUExternalTexture} */ (source), size, options, how);
  }
  const isVideo = kind === 'HTMLVideoElement' || kind === 'VideoFrame';
  const video = isVideo ? await fromVideo(gpu, /** @type {Video} */ (source), options, how) : null;
  return video ?? fromImage(gpu, /** @type {Image | Video} */ (source), options, how);
}

/** @param {Gpu} gpu @param {GPUTexture} texture @param {PictureOptions} options @param {Conversion} how */
function fromTexture(gpu, texture, options, how) {
  const { format, usage, dimension, sampleCount, width, height } = texture;
  if (!(format in FORMATS)) {
    throw new InvalidInput(`a texture of the format ${format} cannot become a tensor`, { hint: Object.keys(FORMATS).join(', ') });
  }
  if (!(usage & TEXTURE.TEXTURE_BINDING)) {
    throw new InvalidInput('the GPUTexture lacks the usage TEXTURE_BINDING', { hint: 'add GPUTextureUsage.TEXTURE_BINDING when you create it' });
  }
  if (dimension !== '2d' || sampleCount !== 1) throw new InvalidInput('the GPUTexture must be of the dimension 2d with one sample');
  const view = () => texture.createView({ dimension: '2d', mipLevelCount: 1, arrayLayerCount: 1 });
  return converted(gpu, { ...BITS8, isWhole: FORMATS[format] }, view, [width, height], options, how);
}

/** Null if the browser cannot bind frames of this video. @param {Gpu} gpu @param {Video} source @param {PictureOptions} options @param {Conversion} how */
async function fromVideo(gpu, source, options, how) {
  const size = 'videoWidth' in source ? [source.videoWidth, source.videoHeight] : [source.displayWidth, source.displayHeight];
  try {
    return await converted(gpu, EXTERNAL, () => gpu.device.importExternalTexture({ source }), size, options, how);
  } catch (error) {
    if (error instanceof DOMException) return null; // of importExternalTexture: software adapters have no path for videos
    throw error;
  }
}

/** @param {Gpu} gpu @param {Image | Video} source @param {PictureOptions} options @param {Conversion} how */
async function fromImage(gpu, source, options, how) {
  const isCopied = COPIED.includes(kindOf(source));
  const picture = isCopied ? /** @type {ImageBitmap} */ (source) : await bitmapOf(source);
  const size = [picture.width, picture.height];
  try {
    return await converted(gpu, BITS8, () => copied(gpu, picture, size), size, options, how);
  } finally {
    if (!isCopied) picture.close();
  }
}

/** @param {Image | Video} source */
async function bitmapOf(source) {
  try {
    const picture = typeof source === 'string' ? await (await fetch(source)).blob() : source;
    if ('decode' in picture) await picture.decode(); // an <img>
    return await createImageBitmap(picture, { premultiplyAlpha: 'none' });
  } catch (error) {
    throw noPicture(error);
  }
}

/** @param {unknown} cause */
function noPicture(cause) {
  const hint = 'a GPUTexture, VideoFrame, ImageBitmap, ImageData, Blob, address, or an element: video, canvas, image';
  return new InvalidInput(`this is no picture: ${/** @type {Error} */ (cause).message}`, { hint, cause });
}

/** A view of the texture that pictures are copied into. @param {Gpu} gpu @param {ImageBitmap} source or a canvas @param {number[]} size */
function copied(gpu, source, size) {
  const state = stateOf(gpu);
  if (state.picture?.width !== size[0] || state.picture.height !== size[1]) {
    state.picture?.destroy();
    const usage = TEXTURE.TEXTURE_BINDING | TEXTURE.COPY_DST | TEXTURE.RENDER_ATTACHMENT;
    state.picture = gpu.device.createTexture({ size, format: 'rgba8unorm', usage, label: 'picture' });
  }
  try {
    gpu.device.queue.copyExternalImageToTexture({ source }, { texture: state.picture }, size);
  } catch (error) {
    throw noPicture(error);
  }
  return state.picture.createView();
}

/**
 * @param {Gpu} gpu @param {Access} access @param {() => GPUTextureView | GPUExternalTexture} bind called just before the commands
 * @param {number[]} size width and height of the picture @param {PictureOptions} options @param {Conversion} how
 */
async function converted(gpu, access, bind, size, options, how) {
  const { device } = gpu;
  const crop = cropOf(options.crop, size);
  const [width, height] = [whole('resizedWidth', options.resizedWidth ?? crop[2], 1), whole('resizedHeight', options.resizedHeight ?? crop[3], 1)];
  const elements = width * height * channelsOf(how);
  const code = fromPictureShader(how, access.texture, access.isWhole);
  const pipeline = await pipelineOf(gpu, code, () => gpu.helper(code, 'auto', 'fromTexture'));
  const wire = gpu.tensors.create(how.type, dimsOf(how, height, width));
  try {
    await submitChecked(gpu, 'the texture', (encoder) => {
      const resources = [{ buffer: stateOf(gpu).parameters }, { buffer: wire.data.gpu }, bind()];
      const entries = resources.map((resource, binding) => ({ binding, resource }));
      device.queue.writeBuffer(stateOf(gpu).parameters, 0, parameters(how.mean, how.bias, crop, [width, height], elements));
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      const groups = Math.ceil(elements / PER_WORD[how.type] / WIDTH);
      pass.dispatchWorkgroups(Math.min(groups, ROW), Math.ceil(groups / ROW));
      pass.end();
    });
  } catch (error) {
    gpu.tensors.dispose(wire.data.gpu);
    throw error;
  }
  return onGpu(wire, wire.data.gpu, gpu);
}

/** The part of a picture that is converted: x, y, width, height. @param {Record<string, unknown> | undefined} crop @param {number[]} size */
function cropOf(crop, [width, height]) {
  if (!width || !height) throw new InvalidInput('the picture has no pixels', { hint: 'wait until it is loaded; videos play' });
  if (!crop) return [0, 0, width, height];
  const part = ['x', 'y', 'width', 'height'].map((name, n) => whole(`crop.${name}`, crop[name], n < 2 ? 0 : 1));
  if (part[0] + part[2] > width || part[1] + part[3] > height) {
    throw new InvalidInput(`the crop ${JSON.stringify(crop)} is not within the picture of ${width} x ${height}`);
  }
  return part;
}

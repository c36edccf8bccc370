// Tensors become textures, or are drawn into a canvas, without a copy to the CPU.

import { InvalidInput } from '../../common/errors.js';
import { TEXTURE, USAGE } from '../../gpu/flags.js';
import { pipelineOf, stateOf, submitChecked } from './gpu_state.js';
import { channelsOf, checkNames, conversion } from './picture_options.js';
import { parameters, toTextureShader } from './shaders.js';

/** @import { Tensor } from 'onnxruntime-common' */
/** @import { Gpu } from '../../gpu/device.js' */

/** By number of channels. @type {Record<number, string>} */
const FORMATS = { 1: 'GRAY', 3: 'RGB', 4: 'RGBA' };

/** @param {Gpu} gpu @param {Tensor} tensor @param {import('./picture_options.js').PictureOptions} options @returns {Promise<GPUTexture>} */
export async function toTexture(gpu, tensor, options) {
  checkNames(options, 'toTexture');
  const { device } = gpu;
  const [how, size] = described(tensor, options);
  const isMultiplied = Boolean(options.canvas) && how.order.length === 4;
  const canvas = options.canvas ? contextOf(gpu, options.canvas, size, isMultiplied) : null;
  const texture = canvas ? null : options.texture ?? newTexture(device, size);
  if (texture) refuseTarget(texture, size);
  const pipeline = await drawing(gpu, toTextureShader(how, isMultiplied), texture?.format ?? navigator.gpu.getPreferredCanvasFormat());
  const [buffer, free] = bufferOf(gpu, tensor);
  const target = /** @type {GPUTexture} */ (canvas?.getCurrentTexture() ?? texture);
  try {
    await submitChecked(gpu, 'the texture or the tensor', (encoder) => {
      const entries = [stateOf(gpu).parameters, buffer].map((bound, binding) => ({ binding, resource: { buffer: bound } }));
      device.queue.writeBuffer(stateOf(gpu).parameters, 0, parameters(how.mean, how.bias, [0, 0, 0, 0], size, tensor.size));
      const pass = encoder.beginRenderPass({ colorAttachments: [{ view: target.createView(), loadOp: 'clear', storeOp: 'store' }] });
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.draw(3);
      pass.end();
    });
  } finally {
    free();
  }
  return target;
}

/** @param {Gpu} gpu @param {string} code @param {GPUTextureFormat} format of the target @returns {Promise<GPURenderPipeline>} */
async function drawing(gpu, code, format) {
  const { device } = gpu;
  try {
    return await pipelineOf(gpu, `${format} ${code}`, () => {
      const module = device.createShaderModule({ code, label: 'toTexture' });
      const fragment = { module, entryPoint: 'main', targets: [{ format }] };
      return device.createRenderPipelineAsync({ layout: 'auto', vertex: { module, entryPoint: 'corner' }, fragment });
    });
  } catch (cause) {
    gpu.throwIfLost();
    throw new InvalidInput(`a tensor cannot be drawn into a texture of the format ${format}`, { hint: 'rgba8unorm, or another format of colours', cause });
  }
}

/** The conversion, and width and height. @param {Tensor} tensor @param {import('./picture_options.js').PictureOptions} options @returns {[import('./picture_options.js').Conversion, number[]]} */
function described({ dims, type, location }, options) {
  if (location === 'none') throw new InvalidInput('the tensor was disposed of');
  const isNhwc = options.tensorLayout === 'NHWC';
  const [batch, channels, height, width] = isNhwc ? [dims[0], dims[3], dims[1], dims[2]] : dims;
  const how = conversion(options, type, options.format ?? FORMATS[channels] ?? 'RGB');
  if (dims.length !== 4 || batch !== 1 || channels !== channelsOf(how)) {
    const wanted = isNhwc ? `[1, height, width, ${channelsOf(how)}]` : `[1, ${channelsOf(how)}, height, width]`;
    throw new InvalidInput(`a tensor with dims [${dims.join(', ')}] is no picture`, { hint: `${wanted}, or other formats and layouts by the options` });
  }
  return [how, [width, height]];
}

/** @param {GPUDevice} device @param {number[]} size */
function newTexture(device, size) {
  const { COPY_SRC, COPY_DST, TEXTURE_BINDING, RENDER_ATTACHMENT } = TEXTURE;
  return device.createTexture({ size, format: 'rgba8unorm', usage: COPY_SRC | COPY_DST | TEXTURE_BINDING | RENDER_ATTACHMENT });
}

/** @param {GPUTexture} texture @param {number[]} size */
function refuseTarget({ width, height, usage }, size) {
  if (width !== size[0] || height !== size[1]) {
    throw new InvalidInput(`the texture has ${width} x ${height} pixels, the tensor ${size.join(' x ')}`);
  }
  if (!(usage & TEXTURE.RENDER_ATTACHMENT)) {
    throw new InvalidInput('the GPUTexture lacks the usage RENDER_ATTACHMENT', { hint: 'add GPUTextureUsage.RENDER_ATTACHMENT when you create it' });
  }
}

/** @param {Gpu} gpu @param {HTMLCanvasElement | OffscreenCanvas} canvas @param {number[]} size @param {boolean} isMultiplied */
function contextOf({ device }, canvas, [width, height], isMultiplied) {
  const context = /** @type {GPUCanvasContext | null} */ (canvas.getContext('webgpu'));
  if (!context) throw new InvalidInput('the canvas has another context than webgpu', { hint: 'use a canvas without one' });
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  context.configure({ device, format: navigator.gpu.getPreferredCanvasFormat(), alphaMode: isMultiplied ? 'premultiplied' : 'opaque' });
  return context;
}

/** The elements in a buffer, and a function that frees it. @param {Gpu} gpu @param {Tensor} tensor @returns {[GPUBuffer, () => void]} */
function bufferOf({ device, tensors }, tensor) {
  if (tensor.location === 'gpu-buffer') {
    const buffer = /** @type {GPUBuffer} */ (tensor.gpuBuffer);
    if (buffer.usage & USAGE.STORAGE) return [buffer, () => {}];
    throw new InvalidInput("the tensor's GPUBuffer lacks the usage STORAGE", { hint: 'add GPUBufferUsage.STORAGE when you create it' });
  }
  const { buffer: bytes, byteOffset, byteLength } = /** @type {Uint8Array} */ (tensor.data);
  const size = Math.ceil(byteLength / 4) * 4;
  const words = new Uint8Array(size);
  words.set(new Uint8Array(bytes, byteOffset, byteLength));
  const buffer = tensors.allocate(size);
  device.queue.writeBuffer(buffer, 0, words);
  return [buffer, () => tensors.dispose(buffer)];
}

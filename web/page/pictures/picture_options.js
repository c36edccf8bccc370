// The options of conversions between pictures and tensors: those of onnxruntime's Tensor.fromImage and toImageData, and some more.

import { InvalidInput } from '../../common/errors.js';
import { warnOnce } from '../../common/log.js';

/**
 * What a shader is made for, and the numbers that it is given, for red, green, blue and alpha. order: which of these each channel of the
 * tensor has; empty: one channel of brightness.
 * @typedef {{ type: string, isNhwc: boolean, order: number[], mean: number[], bias: number[] }} Conversion
 */

/**
 * What pages may give besides a picture or a tensor. Values that a page chooses freely are unknown until they are checked.
 * @typedef {{ device?: GPUDevice, location?: string, dataType?: string, tensorFormat?: string, format?: string, tensorLayout?: string,
 *   norm?: { mean?: unknown, bias?: unknown }, crop?: Record<string, unknown>, width?: unknown, height?: unknown,
 *   resizedWidth?: unknown, resizedHeight?: unknown, texture?: GPUTexture,
 *   canvas?: HTMLCanvasElement | OffscreenCanvas }} PictureOptions
 */

const NAMES = ['device', 'location', 'dataType', 'tensorFormat', 'format', 'tensorLayout', 'norm', 'crop', 'width', 'height', 'resizedWidth',
  'resizedHeight', 'texture', 'canvas'];

/** Warns of options that do not exist. @param {object} options @param {string} call its name */
export function checkNames(options, call) {
  for (const name of Object.keys(options)) if (!NAMES.includes(name)) warnOnce(`${call} has no option "${name}", it has no effect`);
}

/** Channels of tensors by format. @type {Record<string, number[]>} */
const ORDERS = { RGB: [0, 1, 2], RGBA: [0, 1, 2, 3], BGR: [2, 1, 0], RBG: [0, 2, 1], GRAY: [] };

/** Brightness of red, green and blue (ITU-R BT.601), as Pillow's conversion to "L" has it. */
export const BRIGHTNESS = [0.299, 0.587, 0.114];

/** Elements in a word of 32 bits. @type {Record<string, number>} */
export const PER_WORD = { float32: 1, float16: 2, uint8: 4 };

/** @template T @param {string} name @param {T} value @param {readonly T[]} allowed @returns {T} */
function oneOf(name, value, allowed) {
  if (allowed.includes(value)) return value;
  throw new InvalidInput(`${name} cannot be ${JSON.stringify(value)}`, { hint: allowed.join(', ') });
}

/** @param {string} name @param {unknown} value @param {number} usual @returns {number[]} of red, green, blue and alpha */
function fourNumbers(name, value, usual) {
  const all = Array.isArray(value) ? value : new Array(4).fill(value ?? usual);
  const isValid = [3, 4].includes(all.length) && all.every(Number.isFinite);
  if (!isValid) throw new InvalidInput(`norm.${name} cannot be ${JSON.stringify(value)}`, { hint: 'a number, or three or four numbers' });
  return [...all, usual].slice(0, 4);
}

/**
 * @param {PictureOptions} options @param {string} type of the tensor @param {string} format unless the options say it
 * @returns {Conversion}
 */
export function conversion({ tensorLayout = 'NCHW', norm = {} }, type, format) {
  oneOf('dataType', type, Object.keys(PER_WORD));
  return {
    type, order: ORDERS[oneOf('the format', format, Object.keys(ORDERS))],
    isNhwc: oneOf('tensorLayout', tensorLayout, ['NCHW', 'NHWC']) === 'NHWC',
    mean: fourNumbers('mean', norm.mean, type === 'uint8' ? 1 : 255), bias: fourNumbers('bias', norm.bias, 0),
  };
}

/** @param {Conversion} how */
export const channelsOf = ({ order }) => order.length || 1;

/** @param {Conversion} how @param {number} height @param {number} width */
export const dimsOf = (how, height, width) => (how.isNhwc ? [1, height, width, channelsOf(how)] : [1, channelsOf(how), height, width]);

/** @param {string} name @param {unknown} value @param {number} least @returns {number} */
export function whole(name, value, least) {
  if (Number.isInteger(value) && Number(value) >= least) return Number(value);
  throw new InvalidInput(`${name} cannot be ${JSON.stringify(value)}`, { hint: `a whole number from ${least} on` });
}

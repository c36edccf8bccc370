// The WGSL of conversions between pictures and tensors.

import { BRIGHTNESS, channelsOf, PER_WORD } from './picture_options.js';

/** @import { Conversion } from './picture_options.js' */

export const WIDTH = 64; // invocations of a workgroup
export const ROW = 32768; // workgroups along x

/** mean and bias: of red, green, blue and alpha; crop: x, y, width and height; size: width and height of the tensor's picture. */
const PARAMETERS = `
struct Parameters { mean: vec4f, bias: vec4f, crop: vec4i, size: vec2u, elements: u32 }
@group(0) @binding(0) var<uniform> given: Parameters;`;
export const PARAMETER_BYTES = 64;

/** @param {number[]} mean @param {number[]} bias @param {number[]} crop @param {number[]} size @param {number} elements */
export function parameters(mean, bias, crop, size, elements) {
  const bytes = new ArrayBuffer(PARAMETER_BYTES);
  new Float32Array(bytes).set([...mean, ...bias]);
  new Int32Array(bytes, 32).set([...crop, ...size, elements]);
  return bytes;
}

/** How elements become words. @type {Record<string, (element: (n: number) => string) => string>} */
const PACKED = {
  float32: (element) => `bitcast<u32>(${element(0)})`,
  float16: (element) => `pack2x16float(vec2f(${element(0)}, ${element(1)}))`,
  uint8: (element) => `pack4x8unorm(vec4f(${[0, 1, 2, 3].map(element).join(', ')}) / 255.0)`,
};

/** An element of a tensor, by number. @type {Record<string, string>} */
const UNPACKED = {
  float32: 'bitcast<f32>(tensor[n])',
  float16: 'unpack2x16float(tensor[n / 2u])[n % 2u]',
  uint8: 'f32(extractBits(tensor[n / 4u], 8u * (n % 4u), 8u))',
};

/** @param {Conversion} how */
const order = ({ order: channels }) => `const ORDER = array<u32, ${channels.length}>(${channels.map((channel) => `${channel}u`).join(', ')});`;

/**
 * A pixel of the tensor's picture: the mean of those within one step of it, weighted by distance, as Pillow and torchvision resize
 * ("bilinear" with antialiasing); without resizing the pixel itself.
 */
const PIXEL = `fn pixel(x: u32, y: u32) -> vec4f {
  let step = vec2f(given.crop.zw) / vec2f(given.size);
  let reach = max(step, vec2f(1.0));
  let center = (vec2f(f32(x), f32(y)) + 0.5) * step;
  let first = max(vec2i(center - reach + 0.5), vec2i(0));
  let end = min(vec2i(center + reach + 0.5), given.crop.zw);
  var sum = vec4f(0.0);
  var weights = 0.0;
  for (var j = first.y; j < end.y; j++) {
    for (var i = first.x; i < end.x; i++) {
      let near = max(1.0 - abs(vec2f(f32(i), f32(j)) + 0.5 - center) / reach, vec2f(0.0));
      sum += near.x * near.y * level(given.crop.x + i, given.crop.y + j);
      weights += near.x * near.y;
    }
  }
  return sum / weights;
}`;

/**
 * Fills a tensor. Levels of 8 bits are whole numbers before they are weighted.
 * @param {Conversion} how @param {'texture_external' | 'texture_2d<f32>'} texture @param {boolean} isWhole
 */
export const fromPictureShader = (how, texture, isWhole) => `${PARAMETERS}
@group(0) @binding(1) var<storage, read_write> tensor: array<u32>;
@group(0) @binding(2) var picture: ${texture};
${how.order.length ? order(how) : ''}

fn level(x: i32, y: i32) -> vec4f {
  let found = 255.0 * textureLoad(picture, vec2i(x, y)${texture === 'texture_external' ? '' : ', 0'});
  return ${isWhole ? 'round(found)' : 'found'};
}

${PIXEL}

fn element(n: u32) -> f32 {
  if (n >= given.elements) { return 0.0; }
  let area = given.size.x * given.size.y;
  let at = ${how.isNhwc ? `n / ${channelsOf(how)}u` : 'n % area'};
  let found = pixel(at % given.size.x, at / given.size.x);
  ${how.order.length
    ? `let channel = ORDER[${how.isNhwc ? `n % ${channelsOf(how)}u` : 'n / area'}];
  return (found[channel] + given.bias[channel]) / given.mean[channel];`
    : `return (dot(found.rgb, vec3f(${BRIGHTNESS.join(', ')})) + given.bias[0]) / given.mean[0];`}
}

@compute @workgroup_size(${WIDTH}) fn main(@builtin(global_invocation_id) id: vec3u) {
  let i = id.y * ${ROW * WIDTH}u + id.x;
  if (i * ${PER_WORD[how.type]}u < given.elements) {
    tensor[i] = ${PACKED[how.type]((n) => `element(${PER_WORD[how.type]}u * i + ${n}u)`)};
  }
}`;

/** Draws a tensor. @param {Conversion} how @param {boolean} isMultiplied whether colours are multiplied by alpha, as canvases expect */
export const toTextureShader = (how, isMultiplied) => `${PARAMETERS}
@group(0) @binding(1) var<storage, read> tensor: array<u32>;

@vertex fn corner(@builtin(vertex_index) n: u32) -> @builtin(position) vec4f {
  return vec4f(vec2f(f32(2u * (n & 2u)), f32(4u * (n & 1u))) - 1.0, 0.0, 1.0);
}

fn element(n: u32) -> f32 { return ${UNPACKED[how.type]}; }

fn level(channel: u32, place: u32, at: vec2u) -> f32 {
  let pixel = at.y * given.size.x + at.x;
  let n = ${how.isNhwc ? `pixel * ${channelsOf(how)}u + place` : 'place * given.size.x * given.size.y + pixel'};
  return clamp(round((element(n) - given.bias[channel]) * given.mean[channel]), 0.0, 255.0) / 255.0;
}

@fragment fn main(@builtin(position) position: vec4f) -> @location(0) vec4f {
  let at = vec2u(position.xy);
  var found = vec4f(0.0, 0.0, 0.0, 1.0);
  ${how.order.length
    ? how.order.map((channel, place) => `found[${channel}] = level(${channel}u, ${place}u, at);`).join('\n  ')
    : 'found = vec4f(vec3f(level(0u, 0u, at)), 1.0);'}
  return ${isMultiplied ? 'vec4f(found.rgb * found.a, found.a)' : 'found'};
}`;

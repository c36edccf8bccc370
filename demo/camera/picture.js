// Turns a picture into the model's input on the GPU: a texture, a shader, the tensor's buffer.

import { Tensor } from 'pyruntime';

const SIDE = 28; // pixels of the model's input
const BYTES = 4 * SIDE * SIDE;

// https://www.w3.org/TR/webgpu/#namespacedef-gpubufferusage and gputextureusage
const USAGE = { COPY_SRC: 4, STORAGE: 128 };
const TEXTURE_USAGE = { COPY_DST: 2, TEXTURE_BINDING: 4, RENDER_ATTACHMENT: 16 };

/** Prepares dark ink on light paper as in training: 8 x 8 cells, scaled to 22 of 28 pixels. */
const SHADER = `
@group(0) @binding(0) var picture: texture_2d<f32>;
@group(0) @binding(1) var<storage, read_write> image: array<f32, ${SIDE * SIDE}>;
var<workgroup> cells: array<f32, 64>;

fn ink(x: i32, y: i32, darkest: f32, paper: f32) -> f32 {
  if (x < 0 || y < 0 || x > 7 || y > 7) { return 0.0; }
  return clamp((paper - cells[8 * y + x]) / max(paper - darkest, 0.2), 0.0, 1.0);
}

@compute @workgroup_size(8, 8) fn main(@builtin(local_invocation_id) cell: vec3<u32>, @builtin(local_invocation_index) n: u32) {
  let side = f32(min(textureDimensions(picture).x, textureDimensions(picture).y));
  let step = 22.0 / 28.0 * side / 8.0;
  let start = 3.0 / 28.0 * side + vec2<f32>(cell.xy) * step;
  var sum = 0.0;
  for (var y = 0; y < 12; y++) {
    for (var x = 0; x < 12; x++) {
      let at = start + (vec2(f32(x), f32(y)) + 0.5) * step / 12.0;
      sum += dot(textureLoad(picture, vec2<i32>(at), 0).rgb, vec3(0.299, 0.587, 0.114));
    }
  }
  cells[n] = sum / 144.0;
  workgroupBarrier();
  var darkest = 1.0;
  var paper = 0.0;
  for (var i = 0; i < 64; i++) {
    darkest = min(darkest, cells[i]);
    paper = max(paper, cells[i]);
  }
  for (var i = n; i < ${SIDE * SIDE}u; i += 64u) {
    let at = (vec2(f32(i % ${SIDE}u), f32(i / ${SIDE}u)) - 2.5) * 8.0 / 22.0 - 0.5;
    let low = vec2<i32>(floor(at));
    let part = fract(at);
    let top = mix(ink(low.x, low.y, darkest, paper), ink(low.x + 1, low.y, darkest, paper), part.x);
    let bottom = mix(ink(low.x, low.y + 1, darkest, paper), ink(low.x + 1, low.y + 1, darkest, paper), part.x);
    image[i] = mix(top, bottom, part.y);
  }
}`;

/** The model's input on a device, reused for each picture. */
export class PictureTensor {
  /** @param {GPUDevice} device */
  constructor(device) {
    this.device = device;
    const module = device.createShaderModule({ code: SHADER });
    this.pipeline = device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main' } });
    this.buffer = device.createBuffer({ size: BYTES, usage: USAGE.STORAGE | USAGE.COPY_SRC });
    this.tensor = Tensor.fromGpuBuffer(this.buffer, { dataType: 'float32', dims: [1, 1, SIDE, SIDE] });
    /** @type {GPUTexture | null} */
    this.texture = null;
  }

  /**
   * Sets the tensor to the central square of a picture.
   * @param {HTMLCanvasElement | ImageBitmap} source @param {number} width @param {number} height
   */
  take(source, width, height) {
    const side = Math.min(width, height);
    const texture = this.textureOf(side);
    const origin = [Math.floor((width - side) / 2), Math.floor((height - side) / 2)];
    this.device.queue.copyExternalImageToTexture({ source, origin }, { texture }, [side, side]);
    const entries = [{ binding: 0, resource: texture.createView() }, { binding: 1, resource: { buffer: this.buffer } }];
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(0, this.device.createBindGroup({ layout: this.pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(1);
    pass.end();
    this.device.queue.submit([encoder.finish()]);
    return this.tensor;
  }

  /** @param {number} side */
  textureOf(side) {
    if (this.texture?.width === side) return this.texture;
    this.texture?.destroy();
    const usage = TEXTURE_USAGE.COPY_DST | TEXTURE_USAGE.TEXTURE_BINDING | TEXTURE_USAGE.RENDER_ATTACHMENT; // required for copies of pictures
    this.texture = this.device.createTexture({ size: [side, side], format: 'rgba8unorm', usage });
    return this.texture;
  }
}

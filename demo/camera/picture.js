// Turns a picture into the model's input on the GPU: the engine makes a tensor of brightness, a shader the model's input of it.

import { Tensor } from 'pyruntime';

const [SIDE, CELLS, POINTS] = [28, 8, 12]; // pixels of the model's input; cells of a digit in a row; points in a cell's row
const EDGE = 3 / SIDE; // the share of the picture that is left out at each side
const BRIGHTNESS = /** @type {const} */ ({ location: 'gpu-buffer', tensorFormat: 'GRAY', resizedWidth: CELLS * POINTS, resizedHeight: CELLS * POINTS });

// https://www.w3.org/TR/webgpu/#namespacedef-gpubufferusage
const USAGE = { COPY_SRC: 4, STORAGE: 128 };

/** Prepares dark ink on light paper as in training: 8 x 8 cells, scaled to 22 of 28 pixels. */
const SHADER = `
@group(0) @binding(0) var<storage, read_write> bright: array<f32>;
@group(0) @binding(1) var<storage, read_write> image: array<f32, ${SIDE * SIDE}>;
var<workgroup> cells: array<f32, 64>;

fn ink(x: i32, y: i32, darkest: f32, paper: f32) -> f32 {
  if (x < 0 || y < 0 || x > 7 || y > 7) { return 0.0; }
  return clamp((paper - cells[8 * y + x]) / max(paper - darkest, 0.2), 0.0, 1.0);
}

@compute @workgroup_size(8, 8) fn main(@builtin(local_invocation_id) cell: vec3<u32>, @builtin(local_invocation_index) n: u32) {
  var sum = 0.0;
  for (var y = 0u; y < ${POINTS}u; y++) {
    for (var x = 0u; x < ${POINTS}u; x++) {
      sum += bright[${CELLS * POINTS}u * (${POINTS}u * cell.y + y) + ${POINTS}u * cell.x + x];
    }
  }
  cells[n] = sum / ${POINTS ** 2}.0;
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
    this.buffer = device.createBuffer({ size: 4 * SIDE * SIDE, usage: USAGE.STORAGE | USAGE.COPY_SRC });
    this.tensor = Tensor.fromGpuBuffer(this.buffer, { dataType: 'float32', dims: [1, 1, SIDE, SIDE] });
  }

  /**
   * Sets the tensor to the central square of a picture.
   * @param {HTMLCanvasElement | HTMLVideoElement} source @param {number} width @param {number} height
   */
  async take(source, width, height) {
    const full = Math.min(width, height);
    const [x, y] = [width, height].map((size) => Math.round((size - full) / 2 + full * EDGE));
    const inner = Math.floor(full * (1 - 2 * EDGE));
    const bright = await Tensor.fromImage(source, { ...BRIGHTNESS, crop: { x, y, width: inner, height: inner } });
    const entries = [/** @type {GPUBuffer} */ (bright.gpuBuffer), this.buffer].map((buffer, binding) => ({ binding, resource: { buffer } }));
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(this.pipeline);
    pass.setBindGroup(0, this.device.createBindGroup({ layout: this.pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(1);
    pass.end();
    this.device.queue.submit([encoder.finish()]);
    bright.dispose();
    return this.tensor;
  }
}

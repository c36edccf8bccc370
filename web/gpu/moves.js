// Moves tensors between a session's memory and their own buffers: by a copy if both store elements alike, else by a
// shader: for 64-bit integers, which have 32 bits in the memory (storage.js), and for buffers without a COPY usage.

import { COMPUTE, USAGE } from './flags.js';
import { isWide } from './storage.js';
import { FAULT_BYTES } from './memory.js';
import { storedSize, wholeSize } from './sizes.js';

/** @import { GpuMemory } from './memory.js' */
/** @import { GpuTensor, Range } from './types.js' */

const WIDTH = 64; // invocations of a workgroup
const ROW = 32768; // workgroups along x

/** A shader. body: `i` counts elements; third: name and type of its third buffer, besides source and destination. */
const shader = (/** @type {string} */ body, third = 'faults: array<u32>') => `
@group(0) @binding(0) var<storage, read_write> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> destination: array<u32>;
@group(0) @binding(2) var<storage, read_write> ${third};
@compute @workgroup_size(${WIDTH}) fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let i = at.y * ${ROW * WIDTH}u + at.x;
  ${body}
}`;

/**
 * Shaders by kind. The last word of the fault record is set if an integer does not fit.
 * @type {Record<string, string>}
 */
const SHADERS = {
  copy: shader('if (i < arrayLength(&destination)) { destination[i] = source[i]; }'),
  ...Object.fromEntries([['int64', 'bitcast<u32>(bitcast<i32>(low) >> 31u)'], ['uint64', '0u']].flatMap(([type, high]) => [
    [`narrow ${type}`, shader(`if (i < arrayLength(&destination)) {
    let low = source[2u * i];
    destination[i] = low;
    if (source[2u * i + 1u] != ${high}) { faults[3] = 1u; }
  }`)],
    [`widen ${type}`, shader(`if (i < arrayLength(&source)) {
    let low = source[i];
    destination[2u * i] = low;
    destination[2u * i + 1u] = ${high};
  }`)],
  ])),
};

/** Adds a kind of shader, as `shader` takes it. @param {string} kind @param {string} body @param {string} third */
export function addShader(kind, body, third) {
  SHADERS[kind] = shader(body, third);
}

/** The shaders of a device. */
export class Moves {
  /** @param {import('./types.js').Device} gpu */
  constructor(gpu) {
    this.gpu = gpu;
    /** By kind. @type {Map<string, Promise<GPUComputePipeline>>} */
    this.pipelines = new Map();
    /** Those whose compilation has ended. @type {Map<string, GPUComputePipeline>} */
    this.ready = new Map();
    /** @type {GPUBindGroupLayout | null} */
    this.layout = null;
  }

  /**
   * Compiles the shaders that tensors need.
   * @param {GpuTensor[]} feeds @param {GpuTensor[]} fills @param {string[]} types of new outputs
   */
  async prepare(feeds, fills, types) {
    const kinds = [
      ...feeds.map((tensor) => kindOf(tensor, 'narrow')), ...fills.map((tensor) => kindOf(tensor, 'widen')),
      ...types.filter(isWide).map((type) => `widen ${type}`),
    ];
    await Promise.all([...new Set(kinds)].map((kind) => kind && !this.ready.has(kind) && this.compile(kind)));
  }

  /** @param {string} kind */
  async compile(kind) {
    const pipeline = this.pipelines.get(kind) ?? this.pipeline(kind);
    this.pipelines.set(kind, pipeline);
    pipeline.catch(() => this.pipelines.delete(kind));
    this.ready.set(kind, await pipeline);
  }

  /** @param {string} kind */
  pipeline(kind) {
    const layout = this.gpu.device.createPipelineLayout({ bindGroupLayouts: [this.groupLayout()] });
    return this.gpu.helper(SHADERS[kind], layout, kind);
  }

  groupLayout() {
    const buffer = { type: /** @type {const} */ ('storage') };
    const entries = [0, 1, 2].map((binding) => ({ binding, visibility: COMPUTE, buffer }));
    this.layout ??= this.gpu.device.createBindGroupLayout({ entries });
    return this.layout;
  }

  /**
   * Moves a tensor into the memory. Returns whether 64-bit integers were narrowed.
   * @param {GpuMemory} memory @param {number} address @param {GpuTensor} tensor
   */
  in(memory, address, tensor) {
    const kind = kindOf(tensor, 'narrow');
    const size = storedSize(tensor.type, tensor.dims);
    const { gpu: buffer } = tensor.data;
    if (!kind) memory.copyIn(address, buffer, size);
    else if (size) {
      const from = { buffer, offset: 0, size: wholeSize(tensor.type, tensor.dims) };
      this.dispatch(memory, kind, from, memory.locate(address, size));
    }
    return kind.startsWith('narrow');
  }

  /** Moves elements into a tensor. @param {GpuMemory} memory @param {Range} from @param {GpuTensor} tensor */
  out(memory, from, tensor) {
    const kind = kindOf(tensor, 'widen');
    const size = storedSize(tensor.type, tensor.dims);
    const { gpu: buffer } = tensor.data;
    if (!size) return;
    if (!kind) memory.copyOut(from, buffer);
    else this.dispatch(memory, kind, from, { buffer, offset: 0, size: wholeSize(tensor.type, tensor.dims) });
  }

  /** @param {GpuMemory} memory @param {string} kind @param {Range} from @param {Range} to */
  dispatch(memory, kind, from, to) {
    const faults = { buffer: memory.faults, offset: 0, size: FAULT_BYTES };
    this.encode(memory.commands(), kind, [from, to, faults], Math.min(from.size, to.size));
  }

  /** @param {GPUCommandEncoder} encoder @param {string} kind @param {Range[]} ranges @param {number} size bytes that the invocations write */
  encode(encoder, kind, ranges, size) {
    const pass = encoder.beginComputePass();
    pass.setPipeline(/** @type {GPUComputePipeline} */ (this.ready.get(kind)));
    pass.setBindGroup(0, this.group(ranges));
    const groups = Math.ceil(size / 4 / WIDTH);
    pass.dispatchWorkgroups(Math.min(groups, ROW), Math.ceil(groups / ROW));
    pass.end();
  }

  /** @param {Range[]} ranges */
  group(ranges) {
    const entries = ranges.map((resource, binding) => ({ binding, resource }));
    return this.gpu.device.createBindGroup({ layout: this.groupLayout(), entries });
  }

  /**
   * Reads the first word of a buffer that can be bound but not copied, to see whether it is valid.
   * @param {GPUCommandEncoder} encoder @param {GPUBuffer} buffer @param {GPUBuffer} scratch
   */
  touch(encoder, buffer, scratch) {
    const pass = encoder.beginComputePass();
    pass.setPipeline(/** @type {GPUComputePipeline} */ (this.ready.get('copy')));
    const target = { buffer: scratch, offset: 0, size: 4 };
    pass.setBindGroup(0, this.group([{ buffer, offset: 0, size: 4 }, target, { buffer: scratch, offset: 256, size: FAULT_BYTES }]));
    pass.dispatchWorkgroups(1);
    pass.end();
  }
}

/** The kind of shader that a tensor needs, "" if a copy is enough. @param {GpuTensor} tensor @param {'narrow' | 'widen'} wide */
function kindOf({ type, data: { gpu: { usage } } }, wide) {
  if (isWide(type)) return `${wide} ${type}`;
  return usage & (wide === 'narrow' ? USAGE.COPY_SRC : USAGE.COPY_DST) ? '' : 'copy';
}

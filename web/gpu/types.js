// Types of a GPU and of its data. Modules of web/gpu import these and not device.js, because device.js imports those
// modules.

/** providers/webgpu/printer/loops.py. @typedef {{ source: string, buffers: number, params: number, span: number, faults?: boolean, ranges?: number }} Shader */
/** The result of an error scope; isOfCommands: of submitted ones. @typedef {Promise<Error | null> & { isOfCommands?: boolean }} Caught */
/**
 * Properties of the adapter that a Program is compiled for.
 * @typedef {{ name: string, software: boolean, f16: boolean, subgroups: boolean, dot4: boolean, timestamps: boolean,
 *   storage_buffers: number, binding_bytes: number, buffer_bytes: number, workgroups: number, shared_bytes: number, iterations: number }} Description
 */
/** Part of a buffer. @typedef {{ buffer: GPUBuffer, offset: number, size: number }} Range */
/** @typedef {import('../common/protocol.js').WireTensor & { data: import('../common/protocol.js').InBuffer }} GpuTensor */
/**
 * A GPU (device.js). pending: results of error scopes; tensors.live: buffers of tensors that nobody disposed of.
 * @typedef {object} Device
 * @property {GPUDevice} device
 * @property {Description} adapter
 * @property {Caught[]} pending
 * @property {{ live: Set<GPUBuffer>, size: number }} tensors
 * @property {<T>(action: () => T, pending?: Caught[], labels?: string[]) => T} catchErrors
 * @property {(pending?: Caught[]) => Promise<void>} throwErrors
 * @property {() => void} throwIfLost
 * @property {(encoder: GPUCommandEncoder, pending?: Caught[]) => void} submit
 * @property {(shaders: Shader[], labels: string[], seconds?: number) => Promise<GPUComputePipeline[]>} compile
 * @property {(promise: Promise<unknown>, seconds: number) => Promise<void>} inTime
 * @property {(code: string, layout: GPUPipelineLayout | 'auto', label: string) => Promise<GPUComputePipeline>} helper
 * @property {Map<number, { attempt: number, pending: Caught[] }>} memories
 * @property {(buffers: number) => { group: GPUBindGroupLayout, pipeline: GPUPipelineLayout }} layout
 * @property {(size: number, copy: (staging: GPUBuffer) => void, use: (bytes: ArrayBuffer) => void, pending?: Caught[], seconds?: number) => Promise<void>} read
 */
/**
 * Buffers that tensors share (rooms.js), as tensors use them.
 * @typedef {{ shared: Map<GPUBuffer, unknown>, leave(buffer: GPUBuffer, room: import('../common/protocol.js').SharedRoom): boolean,
 *   download(tensor: GpuTensor): Promise<import('../common/protocol.js').WireTensor> }} SharedBuffers
 */
export {};

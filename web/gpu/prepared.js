// A step that a GPU runner has prepared.

/** @import { Call } from '../common/program.js' */
/** @import { OwnBuffer } from './memory.js' */
/**
 * The bindings of a dispatch. sizes: bytes with spare capacity; ownBuffers: of tensors outside the session's memory, null
 * if the bind group must be created again.
 * @typedef {{ call: Call, addresses: number[], sizes: number[], ownBuffers: (OwnBuffer | null | undefined)[] }} Bound
 */

/**
 * A step with bound shapes, and its dispatches for one generation of the memory. words: its argument blocks (addresses,
 * parameters and work of each call); sizes: bytes of each call's buffers.
 */
export class Prepared {
  /** @param {Call[]} calls @param {number[][]} sizes @param {number[]} words */
  constructor(calls, sizes, words) {
    this.calls = calls;
    this.sizes = sizes;
    this.words = words;
    this.generation = -1;
    this.epoch = -1; // of the parameter blocks
    /** @type {GPUComputePipeline[]} */
    this.pipelines = [];
    /** @type {GPUBindGroup[]} */
    this.groups = [];
    /** Workgroups: x and y of each dispatch. @type {number[]} */
    this.counts = [];
    /** Of parameter blocks. */
    this.offsets = new Uint32Array();
    /** The call of each dispatch. @type {Call[]} */
    this.dispatched = [];
    /** The bindings of each bind group. @type {Bound[]} */
    this.bound = [];
    /** Dispatches of a submission, in a run that can be stopped. */
    this.portion = 1;
  }
}

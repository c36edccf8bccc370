// Tensors on the GPU around a run: feeds that are needed on the CPU, and buffers that a repeated run would change twice.

import { InvalidInput } from '../common/errors.js';
import { gpuBuffer } from '../common/protocol.js';
import { USAGE } from '../gpu/flags.js';
import { padToWords } from '../gpu/memory.js';

/** @import { Fetch, WireTensor, WireValue } from '../common/protocol.js' */
/** @import { Gpu } from '../gpu/device.js' */

/** Whether a feed or a tensor to fill is on the GPU. @param {Record<string, WireValue | 'gpu'>} values @returns {boolean} */
export const hasGpuTensors = (values) => Object.values(values).flat().some((value) => value && value !== 'gpu' && gpuBuffer(value.data));

/**
 * The feeds, downloaded to the CPU except for those that may stay on the GPU.
 * @param {Gpu | null | undefined} gpu @param {Record<string, WireValue>} feeds
 * @param {(name: string, item?: number) => boolean} stays whether a feed may, by the input's name and, in a sequence, the item's number
 * @returns {Promise<Record<string, WireValue>>}
 */
export async function downloadFeeds(gpu, feeds, stays) {
  const entries = Object.entries(feeds).map(async ([name, feed]) => {
    if (!Array.isArray(feed)) return [name, feed && (stays(name) ? feed : await onCpu(gpu, name, feed))];
    return [name, await Promise.all(feed.map((item, n) => (stays(name, n) ? item : onCpu(gpu, `${name}[${n}]`, item))))];
  });
  return Object.fromEntries(await Promise.all(entries));
}

/** @param {Gpu | null | undefined} gpu @param {string} name @param {WireTensor} feed @returns {Promise<WireTensor>} */
async function onCpu(gpu, name, feed) {
  if (!gpuBuffer(feed.data)) return feed;
  if (!gpu) {
    const hint = "feed its data, or create the session with executionProviders: ['webgpu']";
    throw new InvalidInput(`"${name}" lies in a GPUBuffer, and the session has no GPU`, { hint });
  }
  await gpu.tensors.check([[`input "${name}"`, feed]], 'download');
  return gpu.tensors.download(feed);
}

/**
 * Copies of the buffers that a run reads and fills, null if there are none: before it is repeated, they are restored.
 * @param {Gpu | null | undefined} gpu @param {Record<string, WireValue>} feeds @param {Record<string, Fetch>} fetches
 */
export function saveChanged(gpu, feeds, fetches) {
  const filled = Object.values(fetches).flatMap((fetch) => (fetch && fetch !== 'gpu' && gpuBuffer(fetch.data)) || []);
  if (!gpu || gpu.lost || !filled.length) return null;
  const fed = new Set(Object.values(feeds).flat().map((feed) => feed && gpuBuffer(feed.data)));
  const both = [...new Set(filled)].filter((buffer) => fed.has(buffer));
  return both.length ? new SavedBuffers(gpu, both) : null;
}

class SavedBuffers {
  /** @param {Gpu} gpu @param {GPUBuffer[]} buffers */
  constructor(gpu, buffers) {
    this.gpu = gpu;
    this.buffers = buffers;
    /** @type {import('../gpu/types.js').Caught[]} */
    const pending = [];
    const usage = USAGE.COPY_SRC | USAGE.COPY_DST;
    this.copies = buffers.map(({ size }) => gpu.catchErrors(() => gpu.device.createBuffer({ size, usage, label: 'saved' }), pending));
    this.copy(buffers, this.copies, pending);
    /** Whether the copies were made. */
    this.isComplete = Promise.all(pending).then((errors) => errors.every((error) => error === null));
  }

  /** @param {GPUBuffer[]} from @param {GPUBuffer[]} to @param {import('../gpu/types.js').Caught[]} pending */
  copy(from, to, pending) {
    const encoder = this.gpu.device.createCommandEncoder();
    from.forEach((buffer, n) => encoder.copyBufferToBuffer(buffer, 0, to[n], 0, buffer.size));
    this.gpu.catchErrors(() => this.gpu.device.queue.submit([encoder.finish()]), pending);
  }

  async restore() {
    if (await this.isComplete) return this.copy(this.copies, this.buffers, []);
    const hint = 'feed a buffer that the run does not fill';
    throw new InvalidInput('the run cannot be repeated after a fault of the GPU: it may have changed its feeds', { hint });
  }

  release() {
    for (const buffer of this.copies) buffer.destroy();
  }
}

/**
 * Writes results to the tensors on the GPU that the caller wants filled.
 * @param {Gpu} gpu @param {Record<string, Fetch>} fetches @param {Record<string, WireValue>} results
 */
export function uploadResults(gpu, fetches, results) {
  for (const [name, result] of Object.entries(results)) {
    const fetch = fetches[name];
    const buffer = fetch && fetch !== 'gpu' ? gpuBuffer(fetch.data) : null;
    if (!buffer || !fetch || fetch === 'gpu' || !result || Array.isArray(result) || !ArrayBuffer.isView(result.data)) continue;
    if (fetch.type !== result.type || fetch.dims.join() !== result.dims.join()) continue; // the page refuses it
    const { data } = result;
    gpu.device.queue.writeBuffer(buffer, 0, /** @type {Uint8Array<ArrayBuffer>} */ (padToWords(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))));
    results[name] = fetch;
  }
  return results;
}

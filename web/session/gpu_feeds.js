// Downloads feeds that are on the GPU but needed on the CPU.

import { InvalidInput } from '../common/errors.js';
import { gpuBuffer } from '../common/protocol.js';

/** @import { WireTensor, WireValue } from '../common/protocol.js' */
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

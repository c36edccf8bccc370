// Feeds that lie on the GPU where the CPU needs them.

import { DeviceLost } from '../common/errors.js';
import { gpuId } from '../common/protocol.js';
import { acquireGpu } from '../gpu/device.js';

/** @typedef {import('../common/protocol.js').WireTensor} WireTensor */
/** @typedef {import('../common/protocol.js').WireValue} WireValue */

/** @param {Record<string, WireValue>} feeds @returns {boolean} */
export const hasGpuFeeds = (feeds) => Object.values(feeds).flat().some((feed) => feed && gpuId(feed.data));

/**
 * Tensors of the GPU on the CPU, but for those that may stay where they are.
 * @param {Record<string, WireValue>} feeds
 * @param {(name: string, item?: number) => boolean} stays by the input's name and, in a sequence, the item's number
 * @returns {Promise<Record<string, WireValue>>}
 */
export async function downloadFeeds(feeds, stays) {
  const entries = Object.entries(feeds).map(async ([name, feed]) => {
    if (!Array.isArray(feed)) return [name, feed && (stays(name) ? feed : await onCpu(name, feed))];
    return [name, await Promise.all(feed.map((item, n) => (stays(name, n) ? item : onCpu(name, item))))];
  });
  return Object.fromEntries(await Promise.all(entries));
}

/** @param {string} name @param {WireTensor} feed @returns {Promise<WireTensor>} */
async function onCpu(name, feed) {
  const id = gpuId(feed.data);
  if (!id) return feed;
  const gpu = await acquireGpu();
  if (!gpu) throw new DeviceLost(`the GPU tensor fed as "${name}" is lost with its device`);
  return gpu.tensors.download(id);
}

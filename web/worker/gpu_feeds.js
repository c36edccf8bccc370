// Feeds that lie on the GPU where the CPU needs them.

import { DeviceLost } from '../common/errors.js';
import { gpuId } from '../common/protocol.js';
import { acquireGpu } from '../gpu/device.js';

/** @typedef {import('../common/protocol.js').WireValue} WireValue */

/** @param {Record<string, WireValue>} feeds @returns {boolean} */
export const hasGpuFeeds = (feeds) => Object.values(feeds).some((feed) => feed && !Array.isArray(feed) && gpuId(feed.data));

/**
 * Tensors of the GPU on the CPU, but for those that may stay where they are.
 * @param {Record<string, WireValue>} feeds @param {(name: string) => boolean} stays
 * @returns {Promise<Record<string, WireValue>>}
 */
export async function downloadFeeds(feeds, stays) {
  const entries = Object.entries(feeds).map(async ([name, feed]) => {
    const id = feed && !Array.isArray(feed) ? gpuId(feed.data) : 0;
    if (!id || stays(name)) return [name, feed];
    const gpu = await acquireGpu();
    if (!gpu) throw new DeviceLost(`the GPU tensor fed as "${name}" is lost with its device`);
    return [name, await gpu.tensors.download(id)];
  });
  return Object.fromEntries(await Promise.all(entries));
}

// What runs Programs in the page itself, and what few sessions need: dist/executor.mjs, which load_code.js fetches.

import { GpuCaches } from '../../gpu/caches.js';
import { Moves } from '../../gpu/moves.js';
import { Rooms } from '../../gpu/rooms.js';
import { setting } from '../../gpu/setting.js';

export { Executor } from '../../run/executor.js';
export { ThreadPool } from '../../threads/pool.js';
export { Rests } from './pressure.js';
export * as maps from '../tensors/maps.js';
export { acquireGpu, currentGpu, gpuOf, whyNoGpu } from '../../gpu/device.js';
export { GpuSession, moveToGpu } from './gpu_session.js';

setting.tensorParts = (gpu) => {
  const rooms = new Rooms(gpu);
  return { moves: new Moves(gpu), rooms, cachesFor: (...given) => new GpuCaches(...given, rooms) };
};

// Numbers that are the same in every run.

/** Numbers in [0, n): mulberry32 of a seed. @param {number} seed */
export function dice(seed) {
  return (/** @type {number} */ n) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), seed | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

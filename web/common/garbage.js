const LARGEST = 256 << 20; // bytes told at once

/**
 * Tells the collector of garbage what it does not see: V8 counts the bytes of an ArrayBuffer, but not those of shared
 * memory, so a worker that made and dropped much of it kept it all. A buffer of that size, dropped at once, is counted
 * in its place; nobody touches it, so it takes addresses and no memory.
 * @param {ArrayBufferLike | undefined} buffer of a memory that is no longer used
 */
export function reportGarbage(buffer) {
  if (!buffer || buffer instanceof ArrayBuffer) return;
  try {
    void new ArrayBuffer(Math.min(buffer.byteLength, LARGEST));
  } catch {} // none so large is to be had: the collector has heard of it by that
}

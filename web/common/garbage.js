const LARGEST = 256 << 20; // bytes reported at once

/**
 * Reports unused shared memory to the garbage collector: V8 counts the bytes of an ArrayBuffer but not those of shared memory,
 * so a worker that allocated and dropped much of it never freed it. An ArrayBuffer of the same size, dropped at once, is
 * counted instead. It is never touched, so it takes address space and no memory.
 * @param {ArrayBufferLike | undefined} buffer of an unused memory
 */
export function reportGarbage(buffer) {
  if (!buffer || buffer instanceof ArrayBuffer) return;
  try {
    void new ArrayBuffer(Math.min(buffer.byteLength, LARGEST));
  } catch {} // if the allocation fails, it has made the collector run
}

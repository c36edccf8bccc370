/** @type {boolean | undefined} */
let isGranted;

/**
 * Whether memory can be shared with workers. Pages must be cross-origin isolated, and users or policies of some browsers forbid it:
 * then its constructors are absent, or throw. Node.js has no isolation.
 */
export function hasSharedMemory() {
  if (globalThis.crossOriginIsolated === false || typeof SharedArrayBuffer !== 'function') return false;
  isGranted ??= isUsable();
  return isGranted;
}

function isUsable() {
  try {
    const { buffer } = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
    return buffer instanceof SharedArrayBuffer && new SharedArrayBuffer(1).byteLength === 1;
  } catch {
    return false;
  }
}

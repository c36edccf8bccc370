/**
 * Whether memory can be shared with workers. Pages must be cross-origin isolated, and users of some browsers can forbid it.
 * Node.js has no isolation.
 */
export const hasSharedMemory = () => globalThis.crossOriginIsolated !== false && typeof SharedArrayBuffer === 'function';

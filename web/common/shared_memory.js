/** Whether memory can be shared with workers: not by pages that are not isolated, and some browsers can be told not to. Node.js has no isolation. */
export const hasSharedMemory = () => globalThis.crossOriginIsolated !== false && typeof SharedArrayBuffer === 'function';

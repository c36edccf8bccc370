/** Whether memory can be shared with workers: pages that are not isolated may not, and some browsers can be told not to. */
export const hasSharedMemory = () => globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer === 'function';

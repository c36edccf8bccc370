// Types of pyruntime/offline/service-worker, for a page's own service worker.

/** Answers requests from what `install` of pyruntime/offline has kept; isolation: the Cross-Origin-Embedder-Policy to add. */
export function listen(options?: { isolation?: 'require-corp' | 'credentialless' | null }): void;

/**
 * Types of pyruntime/offline/service-worker, for a page's own service worker.
 * @module pyruntime/offline/service-worker
 */

/** Answers requests from the files that `install` of pyruntime/offline stored. isolation: the Cross-Origin-Embedder-Policy to add. */
export function listen(options?: { isolation?: 'require-corp' | 'credentialless' | null | undefined }): void;

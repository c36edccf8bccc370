// Types of pyruntime/offline: what a page keeps for visits without a network (docs/hosting.md).

import type { KeptModel } from './index.js';

export interface Options {
  /** Address of the service worker, a copy of dist/offline.sw.js or one that imports it; "./offline.sw.js", from the page. */
  worker?: string;
  /** 'module' for a service worker that is one. */
  type?: WorkerType;
  /** Addresses that it answers for; the folder that it lies in. */
  scope?: string;
  /** Adds the headers that make pages cross-origin isolated, with this Embedder-Policy, for hosts that cannot. */
  isolation?: 'require-corp' | 'credentialless';
  /** Folder of the engine's files, if they are not beside this one. */
  engine?: string;
  /** Lists of files with hashes, as dist/assets.json is one: `{ files: { 'app.js': { size, hash } } }`, by paths from there. */
  lists?: readonly string[];
  /** Addresses of further files of the page. */
  files?: readonly string[];
  /** Models and their files; one with a version is fetched again when the page names another version. */
  models?: readonly (string | { url: string; version?: string })[];
  /** Bytes of all files that are fetched; total 0 where it is not known. */
  onProgress?: (progress: { file: string; loaded: number; total: number }) => void;
  /** Told when something new was fetched, for pages that are opened from now on. */
  onUpdate?: (status: Status) => void;
  /** Told why what is new could not be fetched on a later visit: no network, or `QuotaExceeded`. */
  onError?: (error: Error) => void;
}

export interface Status {
  /** Whether the service worker answers this page's requests. */
  readonly controlled: boolean;
  /** What is kept, the newest last: older ones as long as a page is open that was opened with them. */
  readonly versions: readonly { readonly name: string; readonly build: string; readonly files: number; readonly size: number }[];
  /** All that the origin keeps, whoever asked. */
  readonly models: readonly KeptModel[];
  readonly isolated: boolean;
  /** Whether a reload would isolate the page; told once. */
  readonly reload: boolean;
  /** Bytes of the origin's storage; whether the browser may not evict it. */
  readonly usage: number;
  readonly quota: number;
  readonly persisted: boolean;
}

/** Keeps what is asked for and starts the service worker; on later visits it looks for what is new behind the page's back. */
export function install(options?: Options): Promise<Status>;
/** What is kept, and whether it is in use. */
export function status(options?: Pick<Options, 'scope'>): Promise<Status>;
/** Fetches what is new, for pages that are opened from now on, and what is damaged. Whether there was anything new. */
export function update(options?: Pick<Options, 'scope' | 'onProgress'>): Promise<boolean>;
/** Removes all that install() made, the models that it kept and the service worker too. */
export function remove(options?: Pick<Options, 'scope'>): Promise<void>;

export { InvalidInput, PyRuntimeError, QuotaExceeded, SessionFailed } from './index.js';

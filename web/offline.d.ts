/**
 * Types of pyruntime/offline: a page's store for offline visits (docs/hosting.md).
 * @module pyruntime/offline
 */

import type { KeptModel } from './index.js';

export interface Options {
  /** Address of the service worker: a copy of dist/offline.sw.js or one that imports it. Default: "./offline.sw.js", relative to the page. */
  worker?: string | undefined;
  /** 'module' if the service worker is a module. */
  type?: 'classic' | 'module' | undefined;
  /** The addresses that it controls. Default: its folder. */
  scope?: string | undefined;
  /** Makes pages cross-origin isolated if the host cannot: adds the headers, with this Embedder-Policy. */
  isolation?: 'require-corp' | 'credentialless' | undefined;
  /** Folder of the engine's files, if they are not beside this one. */
  engine?: string | undefined;
  /** Lists of files with hashes, like dist/assets.json: `{ files: { 'app.js': { size, hash } } }`, with paths relative to the list. */
  lists?: readonly string[] | undefined;
  /** Addresses of other files of the page. */
  files?: readonly string[] | undefined;
  /** Models and their files. One with a version is fetched again if the page names another version. */
  models?: readonly (string | { url: string; version?: string | undefined })[] | undefined;
  /** Bytes of all files to fetch; total: 0 if unknown. */
  onProgress?: ((progress: { file: string; loaded: number; total: number }) => void) | undefined;
  /** Called when a new version is stored, for pages opened later. */
  onUpdate?: ((status: Status) => void) | undefined;
  /** Called if the update on a later visit fails: no network, or `QuotaExceeded`. */
  onError?: ((error: Error) => void) | undefined;
}

export interface Status {
  /** Whether the service worker answers this page's requests. */
  readonly controlled: boolean;
  /** Stored versions, newest last. Older ones stay as long as an open page uses them. */
  readonly versions: readonly { readonly name: string; readonly build: string; readonly files: number; readonly size: number }[];
  /** All models that the origin stores. */
  readonly models: readonly KeptModel[];
  readonly isolated: boolean;
  /** Whether a reload may isolate the page. True only once. */
  readonly reload: boolean;
  /** Bytes of the origin's storage; whether it is safe from eviction. */
  readonly usage: number;
  readonly quota: number;
  readonly persisted: boolean;
}

/** Stores what the options name and starts the service worker. On later visits it fetches changes in the background. */
export function install(options?: Options): Promise<Status>;
/** What is stored, and whether this page uses it. */
export function status(options?: Pick<Options, 'scope'>): Promise<Status>;
/** Fetches changed and damaged files, for pages opened later. Resolves to whether there were changes. */
export function update(options?: Pick<Options, 'scope' | 'onProgress'>): Promise<boolean>;
/** Removes all that install() stored, models too, and the service worker. */
export function remove(options?: Pick<Options, 'scope'>): Promise<void>;

export { InvalidInput, PyRuntimeError, QuotaExceeded, SessionFailed } from './index.js';

/**
 * Types of pyruntime/testing: tests of pages in Playwright's Chromium, from Node.js (docs/use/testing.md).
 * @module pyruntime/testing
 */

/** Flags of Chromium: WebGPU by a software adapter, and nothing that needs a network. */
export const FLAGS: readonly string[];
/** More of them, for pages that draw on canvases by WebGPU or bind frames of videos. */
export const DRAWING: readonly string[];

export interface Options {
  /** Whether pages draw by WebGPU: adds `DRAWING`. */
  draws?: boolean | undefined;
  /** Further flags. */
  args?: string[] | undefined;
  /** Playwright's own options, such as `executablePath`. */
  [option: string]: unknown;
}

/** An object with Playwright's `chromium`. */
export interface Playwright<Browser> { chromium: { launch(options?: object): Promise<Browser> } }

/** For `use.launchOptions` in playwright.config.js. */
export function launchOptions(options?: Options): { args: string[]; [option: string]: unknown };
/** Playwright's Chromium with these flags. playwright: the package, for its types or if it cannot be imported from this one. */
export function launch<Browser = any>(options?: Options & { playwright?: Playwright<Browser> | undefined }): Promise<Browser>;

export interface Server {
  /** Without a slash at the end. */
  readonly url: string;
  close(): Promise<unknown>;
}

/**
 * Serves a folder, or several by the beginning of their addresses, and this package as /pyruntime/. isolated (true): whether pages have
 * threads; headers: of all responses; port: any free one by default.
 */
export function serve(
  folders: string | Readonly<Record<string, string>>,
  options?: { isolated?: boolean | undefined; headers?: Readonly<Record<string, string>> | undefined; port?: number | undefined },
): Promise<Server>;

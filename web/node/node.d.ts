// Types of Node.js's modules, as far as this folder uses them.

declare module 'node:worker_threads' {
  export const workerData: { url: string, name: string };
  export const parentPort: { postMessage(message: unknown, transfer?: Transferable[]): void, on(event: 'message', listener: (data: unknown) => void): void };
  export class Worker {
    constructor(file: URL, options: { workerData: unknown, name: string, execArgv?: string[] });
    on(event: 'message' | 'messageerror', listener: (data: unknown) => void): void;
    on(event: 'error', listener: (error: Error) => void): void;
    on(event: 'exit', listener: (code: number) => void): void;
    postMessage(message: unknown, transfer?: Transferable[]): void;
    terminate(): Promise<number>;
    ref(): void;
    unref(): void;
  }
}
declare module 'node:events' {
  export function setMaxListeners(most: number, target: EventTarget): void;
}
declare module 'node:fs' {
  export function openSync(file: URL, how: 'r'): number;
  export function fstatSync(file: number): { size: number, mtimeMs: number };
  export function readSync(file: number, into: Uint8Array, offset: number, length: number, position: number): number;
  export function closeSync(file: number): void;
  export function createReadStream(file: URL | string, options: { signal?: AbortSignal | null, start?: number, end?: number }): {
    on(event: 'error', listener: () => void): { pipe(to: unknown): void },
  };
  export function readFileSync(file: URL): Uint8Array<ArrayBuffer>;
}
declare module 'node:fs/promises' {
  export function realpath(file: string): Promise<string>;
  export function stat(file: URL | string): Promise<{ size: number, isFile(): boolean }>;
  export function readFile(file: URL, encoding: 'utf8'): Promise<string>;
}
declare module 'node:http' {
  export type Request = { url?: string, method?: string, headers: Record<string, string | undefined> };
  export type Response = {
    setHeader(name: string, value: string): void,
    writeHead(status: number, headers?: Record<string, string | number>): Response,
    end(): void,
    destroy(): void,
  };
  export type Server = {
    once(event: 'error', listener: (error: Error) => void): Server,
    listen(port: number, host: string, done: () => void): void,
    address(): { port: number },
    close(done: () => void): void,
    closeAllConnections(): void,
  };
  export function createServer(answer: (request: Request, response: Response) => unknown): Server;
}
declare module 'node:os' {
  export function availableParallelism(): number;
}
declare module 'node:path' {
  export const sep: string;
  export function extname(path: string): string;
  export function join(...parts: string[]): string;
  export function resolve(...parts: string[]): string;
}
declare module 'node:process' {
  export const execArgv: string[];
  export const env: Record<string, string | undefined>;
}
declare module 'node:stream' {
  export const Readable: { toWeb(stream: unknown): ReadableStream<Uint8Array<ArrayBuffer>> };
}
declare module 'node:url' {
  export function fileURLToPath(url: URL): string;
  export function pathToFileURL(path: string): URL;
}

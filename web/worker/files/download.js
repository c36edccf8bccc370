// Opens files of models and their external data, with progress.

import { InvalidModel } from '../../common/errors.js';
import { eachChunk, readBody, sizeOf } from '../../common/read_body.js';
import { fetchAndStore } from '../../storage/stored_models.js';
import { storageEstimate } from '../../storage/quota.js';
import { ScratchFile } from '../../storage/scratch_file.js';
import { noResponse, resumableFetch, patience, Restart } from './resumable_fetch.js';
import { FileInMemory, FileOnDisk, LARGE, fileOf } from './model_file.js';
import { MovingFile, receiveParts } from './moving_file.js';
import { PartWriter } from './part_writer.js';

/** @import { Origin } from '../../common/protocol.js' */
/** @import { OnBytes } from '../../common/read_body.js' */
/** @import { ModelFile } from './model_file.js' */
/**
 * Opens a file for reads of parts (web/node/worker.js).
 * @typedef {{ openFile?: (url: string) => { size: number, read(into: Uint8Array, offset: number): void, close(): Promise<void> } }} NodeGlobal
 */
/** Called with a large file that begins to arrive, perhaps again after a failure. @typedef {(file: MovingFile) => void} Begin */

/**
 * @param {Origin} origin @param {OnBytes} progress
 * @param {AbortSignal} [signal] cancels it
 * @param {Begin} [begin]
 * @returns {Promise<ModelFile>}
 */
export async function fetchFile(origin, progress, signal, begin) {
  if ('bytes' in origin) return new FileInMemory(origin.bytes); // small, shared, or an exported Program
  if ('port' in origin) return receiveParts(origin, signal, begin);
  if ('blob' in origin) return fileOf(origin.blob);
  if ('handle' in origin) {
    return fileOf(await origin.handle.getFile().catch((cause) => {
      throw new InvalidModel(`cannot read ${origin.handle.name}: ${cause.message}`, { cause });
    }));
  }
  if ('stream' in origin) return readStream(origin.stream, progress, signal);
  const { url, keep, fetch } = origin;
  const onDisk = openOnDisk(url);
  if (onDisk) return onDisk;
  const get = (/** @type {RequestInit} */ init) => resumableFetch(url, init, signal, fetch);
  const download = async () => (keep ? store((await fetchAndStore(url, keep, progress, get, undefined, fetch)).bytes) : receive(await get({}), progress, begin));
  for (let restarts = 0;; restarts++) {
    try {
      return await download();
    } catch (cause) {
      if (cause instanceof InvalidModel) throw cause;
      if (cause instanceof Restart && restarts < patience.pauses.length) continue;
      throw noResponse(url, cause);
    }
  }
}

/** A large file that Node.js reads in parts; null for other files. @param {string} url */
function openOnDisk(url) {
  const { openFile } = /** @type {NodeGlobal} */ (globalThis);
  if (!openFile || !url.startsWith('file:')) return null;
  try {
    const { size, read, close } = openFile(url);
    if (size < LARGE) return void close();
    return new FileOnDisk(size, (into, offset) => {
      try {
        read(into, offset);
      } catch (cause) {
        throw new InvalidModel(`cannot read ${url}: ${/** @type {Error} */ (cause).message}`, { cause });
      }
    }, close);
  } catch {
    return null; // fetch reports the error
  }
}

/**
 * @param {ReadableStream<Uint8Array>} stream @param {OnBytes} progress @param {AbortSignal} [signal]
 * @returns {Promise<ModelFile>}
 */
async function readStream(stream, progress, signal) {
  const response = new Response(stream.pipeThrough(new TransformStream(), { signal }));
  return receive(response, progress).catch((cause) => {
    throw new InvalidModel(`cannot read the stream: ${cause.message}`, { cause });
  });
}

/** Moves a large file from memory to disk, if there is room. @param {Uint8Array} bytes @returns {Promise<ModelFile>} */
async function store(bytes) {
  const scratch = bytes.length < LARGE ? null : await scratchFor(bytes.length);
  if (!scratch) return new FileInMemory(bytes);
  if (!scratch.appendUntilFull(bytes).length) return onDisk(scratch);
  await scratch.remove().catch(() => {}); // a later worker deletes it
  return new FileInMemory(bytes);
}

/**
 * Reads a response to disk if it is large or of unknown size. Without room on the disk, the file is in memory.
 * @param {Response} response @param {OnBytes} progress @param {Begin} [begin] @returns {Promise<ModelFile>}
 */
async function receive(response, progress, begin = () => {}) {
  const size = sizeOf(response);
  const scratch = size && size < LARGE || !response.body ? null : await scratchFor(size);
  if (!scratch) return new FileInMemory(await readBody(response, progress));
  const writer = new PartWriter(scratch, size);
  if (size) begin(writer.file);
  try {
    await eachChunk(response, progress, (bytes) => writer.take(bytes));
    return await writer.end();
  } catch (error) {
    writer.arrival.fail(error);
    await scratch.remove().catch(() => {}); // as above
    throw error;
  }
}

/** Moves files from memory to disk, while the session is used. @param {ModelFile[]} files */
export function moveToDisk(files) {
  for (const file of files) if (file instanceof MovingFile) file.moveToDisk(scratchFor).catch(() => {}); // then it stays in memory
}

/** A scratch file; null without a file system, or without room. @param {number} size bytes, 0 if unknown */
async function scratchFor(size) {
  const { usage, quota } = await storageEstimate().catch(() => ({ usage: 0, quota: 0 }));
  return size < quota - usage ? ScratchFile.make().catch(() => null) : null;
}

/** @param {ScratchFile} scratch */
const onDisk = (scratch) => new FileOnDisk(scratch.size, (into, offset) => scratch.read(into, offset), () => scratch.remove());

// Files of models and their external data, with progress.

import { InvalidModel } from '../common/errors.js';
import { eachChunk, readBody, sizeOf } from '../common/read_body.js';
import { fetchAndKeep } from '../storage/kept_models.js';
import { room } from '../storage/quota.js';
import { ScratchFile } from '../storage/scratch_file.js';
import { lastingFetch, patience, Restart } from './lasting_fetch.js';
import { FileInMemory, FileOnDisk, LARGE, fileOf } from './model_file.js';

/** @typedef {import('../common/protocol.js').Origin} Origin */
/** @typedef {import('../common/read_body.js').OnBytes} OnBytes */
/** @typedef {import('./model_file.js').ModelFile} ModelFile */

/**
 * @param {Origin} origin @param {OnBytes} progress
 * @param {AbortSignal} [signal] that it is wanted no more
 * @returns {Promise<ModelFile>}
 */
export async function fetchFile(origin, progress, signal) {
  if ('bytes' in origin) return inPlace(origin.bytes);
  if ('blob' in origin) return fileOf(origin.blob);
  if ('handle' in origin) return fileOf(await origin.handle.getFile().catch((cause) => { throw new InvalidModel(`cannot read ${origin.handle.name}: ${cause.message}`, { cause }); }));
  if ('stream' in origin) return ofStream(origin.stream, progress, signal);
  const { url, keep } = origin;
  const get = (/** @type {RequestInit} */ init) => lastingFetch(url, init, signal);
  const whole = async () => (keep ? inPlace((await fetchAndKeep(url, keep, progress, get)).bytes) : received(() => get({}), progress));
  for (let restarts = 0;; restarts++) {
    try {
      return await whole();
    } catch (cause) {
      if (cause instanceof InvalidModel) throw cause;
      if (cause instanceof Restart && restarts < patience.pauses.length) continue;
      throw new InvalidModel(`cannot fetch ${url}: ${/** @type {Error} */ (cause).message}`, { cause });
    }
  }
}

/** @param {ReadableStream<Uint8Array>} stream @param {OnBytes} progress @param {AbortSignal} [signal] @returns {Promise<ModelFile>} */
async function ofStream(stream, progress, signal) {
  signal?.addEventListener('abort', () => stream.cancel().catch(() => {}));
  const get = async () => {
    if (stream.locked) throw new Error('the disk is full, and it cannot be read a second time');
    return new Response(stream);
  };
  return received(get, progress).catch((cause) => { throw new InvalidModel(`cannot read the stream: ${cause.message}`, { cause }); });
}

/** Bytes that are in memory go to the disk, if they are many. @param {Uint8Array} bytes @returns {Promise<ModelFile>} */
async function inPlace(bytes) {
  const file = bytes.length < LARGE ? null : await onDisk(bytes.length, async (scratch) => scratch.append(bytes));
  return file ?? new FileInMemory(bytes);
}

/** @param {() => Promise<Response>} get @param {OnBytes} progress @returns {Promise<ModelFile>} */
async function received(get, progress) {
  const response = await get();
  const size = sizeOf(response);
  if (size && size < LARGE || !response.body) return new FileInMemory(await readBody(response, progress));
  const file = await onDisk(size, (scratch) => eachChunk(response, progress, (bytes) => scratch.append(bytes)));
  if (!file) return new FileInMemory(await readBody(response.bodyUsed ? await get() : response, progress));
  if (file.size >= LARGE) return file;
  const small = new FileInMemory(file.part(0, file.size)); // of which nobody told the size
  await file.close();
  return small;
}

/**
 * A file that `write` writes; null where there is no place for it, or less than it takes.
 * @param {number} size bytes, 0 where nobody tells @param {(file: ScratchFile) => Promise<void>} write
 */
async function onDisk(size, write) {
  const { usage, quota } = await room().catch(() => ({ usage: 0, quota: 0 }));
  const scratch = size < quota - usage ? await ScratchFile.make().catch(() => null) : null;
  if (!scratch) return null;
  try {
    await write(scratch);
    return new FileOnDisk(scratch.size, (into, offset) => scratch.read(into, offset), () => scratch.remove());
  } catch (error) {
    await scratch.remove().catch(() => {}); // swept later
    if (error instanceof DOMException && error.name === 'QuotaExceededError') return null;
    throw error;
  }
}

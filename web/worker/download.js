// Files of models and their external data, with progress.

import { InvalidModel } from '../common/errors.js';
import { eachChunk, readBody } from '../common/read_body.js';
import { fetchAndKeep } from '../storage/kept_models.js';
import { room } from '../storage/quota.js';
import { ScratchFile } from '../storage/scratch_file.js';
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
  const { url, keep } = origin;
  const get = async (/** @type {RequestInit} */ init) => {
    const response = await fetch(url, { signal, ...init });
    if (!response.ok) throw new InvalidModel(`cannot fetch ${url}: HTTP ${response.status} ${response.statusText}`.trimEnd(), { hint: 'check the address' });
    return response;
  };
  try {
    if (keep) return await inPlace((await fetchAndKeep(url, keep, progress, get)).bytes);
    return await received(() => get({}), progress);
  } catch (cause) {
    if (cause instanceof InvalidModel) throw cause;
    throw new InvalidModel(`cannot fetch ${url}: ${/** @type {Error} */ (cause).message}`, { cause });
  }
}

/** Bytes that are in memory go to the disk, if they are many. @param {Uint8Array} bytes @returns {Promise<ModelFile>} */
async function inPlace(bytes) {
  const file = bytes.length < LARGE ? null : await onDisk(bytes.length, async (scratch) => scratch.append(bytes));
  return file ?? new FileInMemory(bytes);
}

/** @param {() => Promise<Response>} get @param {OnBytes} progress @returns {Promise<ModelFile>} */
async function received(get, progress) {
  const response = await get();
  const size = Number(response.headers.get('content-length') ?? 0); // packed it may be more
  if (size < LARGE || !response.body) return new FileInMemory(await readBody(response, progress));
  const file = await onDisk(size, (scratch) => eachChunk(response, progress, (bytes) => scratch.append(bytes)));
  return file ?? new FileInMemory(await readBody(response.bodyUsed ? await get() : response, progress));
}

/**
 * A file that `write` writes; null where there is no place for it, or less than it takes.
 * @param {number} size bytes, about @param {(file: ScratchFile) => Promise<void>} write
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

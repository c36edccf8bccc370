// Temporary files of one worker in the origin private file system (https://fs.spec.whatwg.org/), which dedicated workers
// read synchronously. `sweepScratch` removes files of workers that have ended.

const FOLDER = 'pyruntime-scratch';

/**
 * @typedef {{ read(into: Uint8Array, where: { at: number }): number, write(bytes: Uint8Array, where: { at: number }): number, close(): void }} Access
 * @typedef {FileSystemFileHandle & { createSyncAccessHandle(): Promise<Access> }} AccessibleFile
 */

export class ScratchFile {
  /** @param {FileSystemDirectoryHandle} folder @param {string} name @param {Access} access exclusive */
  constructor(folder, name, access) {
    this.folder = folder;
    this.name = name;
    this.access = access;
    this.size = 0;
  }

  /** A new file. Throws without such a file system: https://developer.mozilla.org/docs/Web/API/StorageManager/getDirectory */
  static async make() {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle(FOLDER, { create: true });
    const name = crypto.randomUUID();
    const file = /** @type {AccessibleFile} */ (await folder.getFileHandle(name, { create: true }));
    return new ScratchFile(folder, name, await file.createSyncAccessHandle());
  }

  /** Throws if the disk or the origin's share of it is full. @param {Uint8Array} bytes */
  append(bytes) {
    for (let done = 0; done < bytes.length;) {
      const written = countOf(this.access.write(bytes.subarray(done), { at: this.size }), bytes.length - done);
      if (!written) throw new DOMException('the disk is full', 'QuotaExceededError');
      done += written;
      this.size += written;
    }
  }

  /** Appends bytes until the disk is full. Returns the rest. @param {Uint8Array} bytes */
  appendUntilFull(bytes) {
    const before = this.size;
    try {
      this.append(bytes);
    } catch {
      // `size` has the count of bytes written
    }
    return bytes.subarray(this.size - before);
  }

  /** @param {Uint8Array} into not in shared memory @param {number} offset */
  read(into, offset) {
    for (let done = 0; done < into.length;) {
      const count = countOf(this.access.read(into.subarray(done), { at: offset + done }), into.length - done);
      if (!count) throw new DOMException('the scratch file is shorter than expected', 'NotReadableError');
      done += count;
    }
  }

  async remove() {
    this.access.close();
    await this.folder.removeEntry(this.name);
  }
}

/**
 * 0 on an error: Chromium 156 then returns an error code as the count, 2 ** 32 - 8 if the disk is full.
 * @param {number} bytes @param {number} most
 */
const countOf = (bytes, most) => (bytes > most ? 0 : bytes);

/** Removes files of workers that have ended; open files cannot be removed. */
export async function sweepScratch() {
  const root = await navigator.storage?.getDirectory?.();
  const folder = await root?.getDirectoryHandle(FOLDER).catch(() => null); // null: no such folder
  for await (const name of folder?.keys() ?? []) await folder?.removeEntry(name).catch(() => {}); // in use
}

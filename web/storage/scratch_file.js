// Files on the disk that one worker writes and reads, and nobody after it: in the origin private file system
// (https://fs.spec.whatwg.org/), where dedicated workers read as they go. Those of workers that ended are swept away.

const FOLDER = 'pyruntime-scratch';

/** @typedef {{ read(into: Uint8Array, where: { at: number }): number, write(bytes: Uint8Array, where: { at: number }): number, close(): void }} Access */

export class ScratchFile {
  /** @param {FileSystemDirectoryHandle} folder @param {string} name @param {Access} access which others have not meanwhile */
  constructor(folder, name, access) {
    this.folder = folder;
    this.name = name;
    this.access = access;
    this.size = 0;
  }

  /** An empty one. Throws where there can be none: https://developer.mozilla.org/docs/Web/API/StorageManager/getDirectory */
  static async make() {
    const root = await navigator.storage.getDirectory();
    const folder = await root.getDirectoryHandle(FOLDER, { create: true });
    const name = crypto.randomUUID();
    const file = /** @type {any} */ (await folder.getFileHandle(name, { create: true }));
    return new ScratchFile(folder, name, await file.createSyncAccessHandle());
  }

  /** Throws if the disk, or what the browser gives of it, is full. @param {Uint8Array} bytes */
  append(bytes) {
    for (let done = 0; done < bytes.length;) {
      const written = moved(this.access.write(bytes.subarray(done), { at: this.size }), bytes.length - done);
      if (!written) throw new DOMException('the disk is full', 'QuotaExceededError');
      done += written;
      this.size += written;
    }
  }

  /** Appends bytes, as long as that can be; gives those for which it could not. @param {Uint8Array} bytes */
  fit(bytes) {
    const before = this.size;
    try {
      this.append(bytes);
    } catch {
      // as the size tells
    }
    return bytes.subarray(this.size - before);
  }

  /** @param {Uint8Array} into not in shared memory @param {number} offset */
  read(into, offset) {
    for (let done = 0; done < into.length;) {
      const came = moved(this.access.read(into.subarray(done), { at: offset + done }), into.length - done);
      if (!came) throw new DOMException('what was written is gone', 'NotReadableError');
      done += came;
    }
  }

  async remove() {
    this.access.close();
    await this.folder.removeEntry(this.name);
  }
}

/** Chromium 156 returns the code of an error as if it were bytes: 2 ** 32 - 8 where the disk is full. @param {number} bytes @param {number} most */
const moved = (bytes, most) => (bytes > most ? 0 : bytes);

/** Removes what workers left that could not: a file that one has open stays. */
export async function sweepScratch() {
  const root = await navigator.storage?.getDirectory?.();
  const folder = /** @type {any} */ (await root?.getDirectoryHandle(FOLDER).catch(() => null)); // there is none
  for await (const name of folder?.keys() ?? []) await folder.removeEntry(name).catch(() => {}); // in use
}

// Keeps the last model in the browser's own files (OPFS), so that the next visit opens it without choosing it again.

const FOLDER = 'last-model';
const SHARE = 0.5; // of the free storage that a model may take

/** @param {boolean} create */
async function folder(create) {
  const root = await navigator.storage?.getDirectory?.();
  return root?.getDirectoryHandle(FOLDER, { create });
}

/** The kept model and its external data, or none. @returns {Promise<File[]>} */
export async function keptFiles() {
  try {
    const found = await folder(false);
    const files = [];
    for await (const handle of /** @type {any} */ (found)?.values() ?? []) files.push(await handle.getFile());
    return files;
  } catch {
    return []; // nothing is kept, or storage is forbidden
  }
}

/** Forgets the kept model. */
export async function forget() {
  const root = await navigator.storage?.getDirectory?.();
  await root?.removeEntry(FOLDER, { recursive: true }).catch(() => {});
}

/** Keeps a file beside the kept model. @param {File} file */
export async function keepBeside(file) {
  try {
    await write(await folder(false), file);
  } catch (error) {
    console.warn(error);
  }
}

/** @param {FileSystemDirectoryHandle | undefined} into @param {File} file */
async function write(into, file) {
  const handle = await into?.getFileHandle(file.name, { create: true });
  await file.stream().pipeTo(/** @type {WritableStream} */ (await handle?.createWritable()));
}

/** Whether the files are kept: not if they are too large, or storage is forbidden. @param {File[]} files */
export async function keep(files) {
  try {
    const { quota = 0, usage = 0 } = await navigator.storage.estimate();
    if (files.reduce((sum, { size }) => sum + size, 0) > SHARE * (quota - usage)) return false;
    await forget();
    const into = await folder(true);
    for (const file of files) await write(into, file);
    return true;
  } catch (error) {
    console.warn(error);
    return false;
  }
}

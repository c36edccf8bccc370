// Writes lists of files with sizes and hashes, by which pages verify stored files (web/offline/), and compresses files
// at build time.

import { createHash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

const COMPRESSED = /\.(br|gz)$/;
/** Files to compress, as in pyruntime/cli/serve.py. Pyodide's archives compress because they are stored, not deflated;
 * weights hardly compress. */
const COMPRESSIBLE = /\.(css|html|js|json|mjs|svg|wasm|webmanifest|zip)$/;
const SMALLEST = 1024; // bytes; smaller files are not compressed

/** Returns the paths of all files in a folder, relative to it. @param {string} folder */
export async function walk(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => relative(folder, join(entry.parentPath, entry.name)).split(sep).join('/')).sort();
}

/**
 * Writes `folder/name`: { build, files: { path: { size, hash, page } } }, hash SHA-256 in hexadecimal.
 * @param {string} folder @param {string} name of the list @param {(path: string) => boolean} page whether pages use it
 * @param {(path: string) => boolean} [listed]
 */
export async function writeList(folder, name, page, listed = () => true) {
  const paths = (await walk(folder)).filter((path) => path !== name && !COMPRESSED.test(path) && listed(path));
  const files = Object.fromEntries(await Promise.all(paths.map(async (path) => {
    const bytes = await readFile(join(folder, path));
    return [path, { size: bytes.length, hash: createHash('sha256').update(bytes).digest('hex'), page: page(path) }];
  })));
  const build = createHash('sha256').update(JSON.stringify(files)).digest('hex').slice(0, 16);
  await writeFile(join(folder, name), `${JSON.stringify({ build, files }, null, 1)}\n`);
}

/** Compresses by brotli at its highest quality. @param {Uint8Array} bytes */
export const brotli = (bytes) => promisify(brotliCompress)(bytes, {
  params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY, [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS },
});

/** Writes .br and .gz files beside the compressible files of a folder. @param {string} folder */
export async function compressAll(folder) {
  const ways = { br: brotli, gz: (bytes) => promisify(gzip)(bytes, { level: 9 }) };
  for (const path of (await walk(folder)).filter((path) => COMPRESSIBLE.test(path))) {
    const bytes = await readFile(join(folder, path));
    if (bytes.length < SMALLEST) continue;
    await Promise.all(Object.entries(ways).map(async ([ending, pack]) => writeFile(join(folder, `${path}.${ending}`), await pack(bytes))));
  }
}

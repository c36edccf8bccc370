// Lists of files with sizes and hashes, by which pages check what they keep (web/offline/), and files compressed ahead.

import { createHash } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';

const COMPRESSED = /\.(br|gz)$/;
/** What compresses, as in pyruntime/cli/serve.py: Pyodide's archives are stored, not deflated; weights are as good as random. */
const COMPRESSIBLE = /\.(css|html|js|json|mjs|svg|wasm|webmanifest|zip)$/;
const SMALLEST = 1024; // bytes that are worth it

/** Every file in a folder, as paths from there. @param {string} folder */
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

/** At its best. @param {Uint8Array} bytes */
export const brotli = (bytes) => promisify(brotliCompress)(bytes, {
  params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY, [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS },
});

/** Writes .br and .gz beside all files of a folder that get smaller by it. @param {string} folder */
export async function compressAll(folder) {
  const ways = { br: brotli, gz: (bytes) => promisify(gzip)(bytes, { level: 9 }) };
  for (const path of (await walk(folder)).filter((path) => COMPRESSIBLE.test(path))) {
    const bytes = await readFile(join(folder, path));
    if (bytes.length < SMALLEST) continue;
    await Promise.all(Object.entries(ways).map(async ([ending, pack]) => writeFile(join(folder, `${path}.${ending}`), await pack(bytes))));
  }
}

// Compresses files by brotli at its highest quality: node bench/compress.mjs FILE OUT [FILE OUT …]

import { readFile, rename, writeFile } from 'node:fs/promises';
import { brotli } from '../scripts/list_files.mjs';

const files = process.argv.slice(2);
for (let i = 0; i < files.length; i += 2) {
  await writeFile(`${files[i + 1]}.part`, await brotli(await readFile(files[i])));
  await rename(`${files[i + 1]}.part`, files[i + 1]);
}

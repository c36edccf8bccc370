// Brotli at its best of files: node bench/compress.mjs FILE OUT [FILE OUT …]

import { readFile, rename, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';

const compress = promisify(brotliCompress);
const files = process.argv.slice(2);
for (let i = 0; i < files.length; i += 2) {
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 24 };
  await writeFile(`${files[i + 1]}.part`, await compress(await readFile(files[i]), { params }));
  await rename(`${files[i + 1]}.part`, files[i + 1]);
}

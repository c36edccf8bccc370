// Opens every program 0.pyrt, 1.pyrt, … of a folder and prints the error of each: a JSON list, "" for one that is fine.
// Usage: node open_programs.mjs FOLDER

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PyRuntimeError } from '../../web/common/errors.js';
import { parse } from '../../web/worker/programs/program_file.js';

const answers = [];
for (let n = 0; existsSync(join(process.argv[2], `${n}.pyrt`)); n++) {
  const bytes = new Uint8Array(readFileSync(join(process.argv[2], `${n}.pyrt`)));
  try {
    parse(bytes);
    answers.push('');
  } catch (error) {
    answers.push(error instanceof PyRuntimeError ? error.message : `untyped: ${error.stack}`);
  }
}
console.log(JSON.stringify(answers));

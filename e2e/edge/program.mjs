// In Node.js and Deno: modules are compiled from files.

import { readFileSync } from 'node:fs';
import { found } from './cases.mjs';

const { names, cases } = JSON.parse(readFileSync('cases.json', 'utf8'));
const modules = Object.fromEntries(names.map((name) => [name, new WebAssembly.Module(readFileSync(`${name}.wasm`))]));
console.log(JSON.stringify(await found(modules, cases)));

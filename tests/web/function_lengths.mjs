// Prints the lines of each function of the files on the command line: a JSON object, "file:name" -> count.

import { readFileSync } from 'node:fs';
import { parseAst } from 'vite';

const lengths = {};

/** Functions of a tree, inner ones and methods too; name: of what holds them. */
function visit(node, name, file, lineOf) {
  if (typeof node !== 'object' || node === null) return;
  const own = node.id?.name ?? node.key?.name ?? name;
  if (node.body && /Function/.test(node.type)) {
    const lines = lineOf(node.end) - lineOf(node.start) + 1;
    lengths[`${file}:${own}`] = Math.max(lines, lengths[`${file}:${own}`] ?? 0);
  }
  for (const child of Object.values(node)) visit(child, own, file, lineOf);
}

for (const file of process.argv.slice(2)) {
  const text = readFileSync(file, 'utf8');
  visit(parseAst(text), '', file, (position) => text.slice(0, position).split('\n').length);
}
console.log(JSON.stringify(lengths));

// Calls translated functions. Usage: node run_functions.mjs FOLDER < CASES; prints the results as JSON.
// CASES: [{ name, arguments }], where a set is { set: […] } and a dict is { map: [[key, value], …] }.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const folder = pathToFileURL(`${process.argv[2]}/`);
const revive = (value) => {
  if (Array.isArray(value)) return value.map(revive);
  return value?.set ? new Set(value.set) : value?.map ? new Map(value.map) : value;
};
const plain = (value) => {
  if (value instanceof Set) return { set: [...value].sort((a, b) => a - b) };
  if (value instanceof Map) return { map: [...value].map(([key, inner]) => [key, plain(inner)]) };
  if (Array.isArray(value)) return value.map(plain);
  return value === undefined ? 'undefined' : Number.isFinite(value) ? value + 0 : typeof value === 'number' ? String(value) : value;
};
const outcome = async (file, name, args) => {
  try {
    const module = await import(new URL(file, folder));
    return { value: plain(module[name](...args.map(revive))) };
  } catch (error) {
    return { error: `${error.constructor.name}: ${error.message}` };
  }
};
const results = [];
for (const { name, arguments: args } of JSON.parse(readFileSync(0, 'utf8')))
  results.push([await outcome(`${name}.js`, name, args), await outcome(`${name}.checked.js`, name, args)]);
console.log(JSON.stringify(results));

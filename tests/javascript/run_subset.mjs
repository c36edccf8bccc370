// Runs functions of the translated tests/javascript/subset.py. Usage: node run_subset.mjs MODULE < CASES; prints results as JSON.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const subset = await import(pathToFileURL(process.argv[2]).href);
const cases = JSON.parse(readFileSync(0, 'utf8'));
const revive = (value) => (!Array.isArray(value) && value?.map ? new Map(Object.entries(value.map)) : value); // dicts of Python are maps
const plain = (key, value) => (value === Infinity ? 'inf' : value);
const result = async ([name, ...args]) => {
  try {
    return await subset[name](...args.map(revive));
  } catch (error) {
    return `${error.constructor.name}: ${error.message.replace(/\nSee .*/, '')}`;
  }
};
console.log(JSON.stringify(await Promise.all(cases.map(result)), plain));

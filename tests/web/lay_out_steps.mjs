// Lays out the steps that it reads from standard input: JSON list of { chunk, end, free, calls, tenants }; prints the
// addresses, the free list and the end after each.

import { readFileSync } from 'node:fs';
import { Arena } from '../../web/run/arena.js';
import { layOut, LiveRange } from '../../web/run/step_layout.js';

const answers = JSON.parse(readFileSync(0, 'utf8')).map(({ chunk, end, free, calls, tenants }) => {
  const arena = new Arena(free.map(([address, size]) => ({ address, size })), end, chunk);
  const ranges = tenants.map(([size, born, dies, address]) => new LiveRange(size, born, dies, address, chunk > 0));
  layOut(arena, ranges, calls);
  return { addresses: ranges.map(({ address }) => address), free: arena.free.map(({ address, size }) => [address, size]), end: arena.end };
});
console.log(JSON.stringify(answers));

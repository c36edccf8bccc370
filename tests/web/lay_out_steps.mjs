// Lays out the steps that it reads from standard input: JSON list of { chunk, end, free, calls, tenants }; prints the
// addresses, the free list, the end and the top after each.

import { readFileSync } from 'node:fs';
import { Arena, GPU } from '../../web/runtime/arena.js';
import { layOut, LiveRange } from '../../web/runtime/step_layout.js';

const answers = JSON.parse(readFileSync(0, 'utf8')).map(({ chunk, end, free, calls, tenants }) => {
  const arena = Object.assign(new Arena(GPU, chunk), { free, end, top: end });
  const ranges = tenants.map(([size, born, dies, address]) => new LiveRange(size, born, dies, address, true));
  layOut(arena, ranges, calls);
  return { addresses: ranges.map(({ address }) => address), free: arena.free, end: arena.end, top: arena.top };
});
console.log(JSON.stringify(answers));

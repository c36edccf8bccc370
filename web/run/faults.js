// Indices out of range, which kernels report by a record of 16 bytes: number of a node and extent (int32), index (int64).
// Mirrors pyruntime/native/execution/faults.py.

import { outOfRange } from '../common/errors.js';
import { FAULT, FAULT_BYTES } from '../common/linear_memory.js';

/**
 * Refuses what kernels made of an index out of range. The record is cleared: the next run starts without.
 * @param {Uint8Array} memory @param {string[]} checked nodes whose indices are checked, by number from 1
 */
export function checkFaults(memory, checked) {
  const record = new DataView(memory.buffer, memory.byteOffset + FAULT, FAULT_BYTES);
  const node = record.getInt32(0, true);
  if (!node) return;
  const [extent, index] = [record.getInt32(4, true), record.getBigInt64(8, true)];
  memory.fill(0, FAULT, FAULT + FAULT_BYTES);
  throw outOfRange(checked[node - 1] ?? '', index, extent);
}

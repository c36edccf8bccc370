// Reports indices out of range. Kernels write a record of 16 bytes: node number and extent (int32), and index (int64).
// Twin of pyruntime/native/execution/faults.py.

import { outOfRange } from '../common/errors.js';
import { FAULT, FAULT_BYTES } from '../common/linear_memory.js';

/**
 * Throws ExecutionError if a kernel found an index out of range, and clears the record for the next run.
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

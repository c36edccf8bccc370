// Indices out of range, which kernels report by a record of 16 bytes: number of a node and extent (int32), index (int64).
// Mirrors pyruntime/native/execution/faults.py; providers/wasm/printer/faults.py says where it lies.

import { outOfRange } from '../common/errors.js';

const RECORD = 512; // in the reserved bytes at address 0
const RECORD_BYTES = 16;

/**
 * Refuses what kernels made of an index out of range. The record is cleared: the next run starts without.
 * @param {Uint8Array} memory @param {string[]} checked nodes whose indices are checked, by number from 1
 */
export function checkFaults(memory, checked) {
  const record = new DataView(memory.buffer, memory.byteOffset + RECORD, RECORD_BYTES);
  const node = record.getInt32(0, true);
  if (!node) return;
  const [extent, index] = [record.getInt32(4, true), record.getBigInt64(8, true)];
  memory.fill(0, RECORD, RECORD + RECORD_BYTES);
  throw outOfRange(checked[node - 1] ?? '', index, extent);
}

// The fixed words of linear memory, as byte addresses. Written by scripts/contract.py from pyruntime/codegen/linear_memory.py.

export const RESERVED = 1024; // bytes at address 0 that no buffer uses
export const POISON = 4; // int32: the thread that trapped first, plus one
export const AWAKE = 8; // int32: 1 if the leading thread may not sleep
export const STOP = 12; // int32: the number of the call if it may be stopped, else 0; the negative number stops it
export const TICKET = 64; // int64: claims from the front (16 bits), claims from the back (16 bits), epoch (32 bits)
export const EPOCH = 68; // int32: the high half of TICKET, the number of the last group of calls
export const DONE = 128; // int32: chunks of the group that threads other than the leader have finished
export const SLEEPERS = 192; // int32: threads that sleep on EPOCH
export const WAITING = 196; // int32: 1 while the leader sleeps on DONE
export const FAULT = 512; // int32 number of a node (0: no fault), int32 extent of the axis, int64 index that is out of range
export const FAULT_BYTES = 16;
export const PANEL_ORDER = 528; // int32: how GEMV kernels read quantised weights, the sum of IN_TURNS and PREFETCH or 0
export const IN_TURNS = 1; // read one panel of each third of the columns in turn
export const PREFETCH = 2; // prefetch the weights that are read next
export const CODES_READ = 592; // int32: KiB of quantised weights that GEMV kernels have read, approximate with several threads

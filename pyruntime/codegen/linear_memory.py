"""The fixed words of linear memory: byte addresses below RESERVED, where no buffer lies.

They last as long as the memory. scripts/contract.py writes them into web/common/linear_memory.js, comments included.
Words on which threads spin have cache lines of their own.
"""

RESERVED = 1024  # bytes at address 0 that no buffer uses
POISON = 4  # int32: the thread that trapped first, plus one
AWAKE = 8  # int32: 1 if the leading thread may not sleep
STOP = 12  # int32: the number of the call if it may be stopped, else 0; the negative number stops it
TICKET = 64  # int64: claims from the front (16 bits), claims from the back (16 bits), epoch (32 bits)
EPOCH = 68  # int32: the high half of TICKET, the number of the last group of calls
DONE = 128  # int32: chunks of the group that threads other than the leader have finished
SLEEPERS = 192  # int32: threads that sleep on EPOCH
WAITING = 196  # int32: 1 while the leader sleeps on DONE
FAULT = 512  # int32 number of a node (0: no fault), int32 extent of the axis, int64 index that is out of range
FAULT_BYTES = 16
PANEL_ORDER = 528  # int32: how GEMV kernels read quantised weights, the sum of IN_TURNS and PREFETCH or 0
IN_TURNS = 1  # read one panel of each third of the columns in turn
PREFETCH = 2  # prefetch the weights that are read next
CODES_READ = 592  # int32: KiB of quantised weights that GEMV kernels have read, approximate with several threads
LOOP_BYTES = 65536  # of the buffer of a loop whose steps run inside WebAssembly (pyruntime/runtime/repeats.py)
LOOP_HEAD = 32  # bytes in it before the entries of stacks
LOOP_ADDRESSES = 4  # of a phase in it, besides those of rows

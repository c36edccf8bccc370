// What the engine's worker and its threads agree on: the words of the control buffer, in Int32 units, and the messages.
//
// A command is fields and a bit in the mailbox of each thread that may help. Nobody waits for it: one that comes when
// the run is over finds nothing to do (providers/wasm/threads/spmd.py), or sees the next command in place of this one.
// A thread looks at its mailbox for a while after a run and then sleeps on it.

import * as address from '../common/linear_memory.js';

export const SEQUENCE = 0; // odd while the fields of the command are written
export const ARRIVED = 1; // threads that have taken up the command
export const COMMAND = 16; // fields of the command RUN: program, entry, table, threads, epoch
export const FIELDS = 5;
export const MAILBOXES = 32; // of thread t at MAILBOXES + LINE * t
export const LINE = 16; // words of a cache line
export const MAX_THREADS = 32;
export const REASON = MAILBOXES + LINE * MAX_THREADS; // text of what stopped a thread: its length in bytes, then the bytes
export const REASON_BYTES = 508;
export const CONTROL_BYTES = 4 * (REASON + 1) + REASON_BYTES;

/** How the names of threads begin. */
export const THREAD = 'pyruntime thread';

/** Bits of a mailbox. LISTEN: a message waits in the event loop. */
export const RUN = 1;
export const LISTEN = 2;

/** Words of a Program's memory, in Int32 units (providers/wasm/threads/work_claims.py uses them). */
export const SYNC_WORDS = address.RESERVED / 4;
export const POISON = address.POISON / 4;
export const AWAKE = address.AWAKE / 4;
export const EPOCH = address.EPOCH / 4;

/** @typedef {Record<string, (...args: number[]) => void>} Code exports of a Program's module */
/** @typedef {{ control: SharedArrayBuffer, tid: number }} Hire the first message to a thread */
/**
 * @typedef {{ program: number, module: WebAssembly.Module, imports: Record<string, WebAssembly.Memory>, entries: string[] }} Load
 */
/** @typedef {{ unload: number }} Unload */

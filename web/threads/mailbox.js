// The protocol between the engine's worker and its threads: words of the control buffer, in Int32 units, and messages.
//
// A command consists of fields, and a bit in the mailbox of each thread that may help. The leader does not wait for threads: a
// thread that arrives after the run finds no work (providers/wasm/threads/spmd.py), or the next command. After a run a thread
// polls its mailbox for a while, and then sleeps on it.

import * as address from '../common/linear_memory.js';

export const SEQUENCE = 0; // odd while the fields of the command are written
export const ARRIVED = 1; // threads that have read the command
export const COMMAND = 16; // fields of the command RUN: program, entry, table, threads, epoch
export const FIELDS = 5;
export const MAILBOXES = 32; // the mailbox of thread t is at MAILBOXES + LINE * t
export const LINE = 16; // words of a cache line
export const MAX_THREADS = 32;
export const REASON = MAILBOXES + LINE * MAX_THREADS; // why a thread stopped: length of a text in bytes, then the bytes
export const REASON_BYTES = 508;
export const CONTROL_BYTES = 4 * (REASON + 1) + REASON_BYTES;

/** Name of the engine's worker. */
export const ENGINE = 'pyruntime';
/** The names of SharedWorkers that run the engine for all pages of an origin begin with this. */
export const SHARED = 'pyruntime shared';
/** Prefix of the names of threads. */
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

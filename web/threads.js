// What the engine's worker and its threads agree on: the words of the control buffer, in Int32 units, and the messages.
//
// A command is fields and a bit in the mailbox of each thread that takes part, so that a thread which does not take part
// sees nothing of it. A thread looks at its mailbox for a while after a run and then sleeps on it.

export const PENDING = 0; // threads that have not finished the command
export const PROGRAM = 16; // fields of the command RUN
export const ENTRY = 17;
export const TABLE = 18;
export const THREADS = 19;
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

/** In a Program's memory (providers/wasm/spmd.py): words to clear before a run, and the thread that trapped, plus one. */
export const SYNC_WORDS = 160;
export const POISON = 1;
export const AWAKE = 2; // 1: no thread may sleep at a barrier

/** @typedef {Record<string, (...args: number[]) => void>} Code exports of a Program's module */
/** @typedef {{ control: SharedArrayBuffer, tid: number }} Hire the first message to a thread */
/** @typedef {{ program: number, module: WebAssembly.Module, memory: WebAssembly.Memory, entries: string[] }} Load */
/** @typedef {{ unload: number }} Unload */

// A kernel thread: has each Program's code on the memory of the engine's worker, and runs it by commands in its mailbox.

import { reportGarbage } from '../common/garbage.js';
import { ARRIVED, COMMAND, FIELDS, LINE, LISTEN, MAILBOXES, POISON, REASON, REASON_BYTES, RUN, SEQUENCE } from './mailbox.js';

// ms of polling for the next command after a run. A thread that sleeps at once looks idle to the scheduler, which then
// puts it on the core of the thread that wakes it: with 40 ms between runs MiniLM took 16 ms on two threads after 0.05
// ms of polling, 11 ms after 3.
const SPIN = 3;
const POLLS = 100; // between two reads of the clock

/** @type {Map<number, { code: import('./mailbox.js').Code, entries: string[], imports: Record<string, WebAssembly.Memory> }>} */
const programs = new Map();
/** @type {Int32Array} */
let control;
let tid = 0;
/**
 * The sender of messages, which gets the answers: the worker that started the thread, or, if the page started it, the port of the
 * engine's worker.
 * @type {{ postMessage(message: string): void }}
 */
let leader = globalThis;

export function startThread() {
  globalThis.onmessage = receive;
}

/**
 * @typedef {import('./mailbox.js').Hire & import('./mailbox.js').Load & import('./mailbox.js').Unload & { port: MessagePort }} Message
 * @param {MessageEvent<Partial<Message>>} event
 */
function receive({ data }) {
  if (data.port) {
    leader = data.port;
    data.port.onmessage = receive;
    return;
  }
  let error = '';
  try {
    if (data.control) {
      control = new Int32Array(data.control);
      tid = data.tid ?? 0;
    } else if (data.module && data.imports) {
      const { exports } = new WebAssembly.Instance(data.module, { env: data.imports });
      const code = /** @type {import('./mailbox.js').Code} */ (/** @type {unknown} */ (exports));
      programs.set(data.program ?? 0, { code, entries: data.entries ?? [], imports: data.imports });
    } else unload(data.unload ?? 0);
  } catch (reason) {
    error = String(reason);
  }
  leader.postMessage(error);
  serve();
}

/** @param {number} program */
function unload(program) {
  for (const { buffer } of Object.values(programs.get(program)?.imports ?? {})) reportGarbage(buffer);
  programs.delete(program);
}

/** Runs commands until there is a message to read. */
function serve() {
  for (let mail = 0; !(mail & LISTEN);) {
    mail = take(mail !== 0);
    if (mail & RUN) run();
  }
}

/** Waits for bits in the mailbox, and takes them. @param {boolean} recent whether they are likely to come soon */
function take(recent) {
  const mailbox = MAILBOXES + LINE * tid;
  const until = recent ? performance.now() + SPIN : 0;
  for (let polls = 1; Atomics.load(control, mailbox) === 0; polls++) {
    if (recent && (polls % POLLS || performance.now() < until)) continue;
    Atomics.wait(control, mailbox, 0);
  }
  return Atomics.exchange(control, mailbox, 0);
}

/** The latest command. */
function command() {
  for (;;) {
    const sequence = Atomics.load(control, SEQUENCE);
    const fields = Array.from({ length: FIELDS }, (_, i) => Atomics.load(control, COMMAND + i));
    if (sequence % 2 === 0 && Atomics.load(control, SEQUENCE) === sequence) return fields;
  }
}

function run() {
  const [number, entry, table, threads, epoch] = command();
  const program = programs.get(number);
  Atomics.add(control, ARRIVED, 1);
  Atomics.notify(control, ARRIVED);
  if (!program) return; // a later command, which is not for this thread, has replaced the one in the mailbox
  try {
    program.code[program.entries[entry]](table, tid, threads, epoch);
  } catch (error) {
    const sync = new Int32Array(program.imports.memory.buffer);
    if (Atomics.compareExchange(sync, POISON, 0, tid + 1) === 0) explain(/** @type {Error} */ (error).message);
    program.code.poison(tid);
  }
}

/** @param {string} reason */
function explain(reason) {
  const text = new TextEncoder().encode(reason).subarray(0, REASON_BYTES);
  new Uint8Array(control.buffer, 4 * (REASON + 1)).set(text);
  control[REASON] = text.length;
}

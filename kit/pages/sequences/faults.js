// Faults of the GPU, by e2e/pages/gpu_faults.js, in the page and in the engine's worker.

const KINDS = { lost: ['lost', 'between'], full: ['full', 'run'], shader: ['nth shader', 'run'] };
/** What the worker reports to the page. */
const REPORT = `
  const channel = new BroadcastChannel('sequences');
  self.addEventListener('unhandledrejection', ({ reason }) => channel.postMessage('unhandled in the worker: ' + (reason?.stack ?? reason)));
  self.addEventListener('error', ({ message }) => channel.postMessage('error in the worker: ' + message));
`;

export class Faults {
  constructor(ort) {
    this.ort = ort;
  }

  /** Installs what injects faults into the GPU: in the current worker of the engine, and once in the page. */
  async install() {
    const code = await (await fetch('/gpu_faults.js')).text();
    if (!globalThis.inject) (0, eval)(code);
    await this.ort.python('import js\njs.eval(args)', code + REPORT);
  }

  async inject(fault, skipped, times) {
    const [kind, when] = KINDS[fault];
    const given = [kind, when, times, 0, skipped];
    await globalThis.inject(...given);
    await this.ort.python('import js\nawait js.inject(*args)', given);
  }

  async heal() {
    globalThis.heal();
    await this.ort.python('import js\nif hasattr(js, "heal"): js.heal()');
  }
}

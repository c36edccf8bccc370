// Makes training steps one after another, in the engine's worker. The page stays responsive: between steps it only makes
// batches and draws, several times a second.

/** @typedef {import('pyruntime').TrainingSession} TrainingSession */
/** loss: of the latest steps, smoothed; time: milliseconds of a step. @typedef {{ step: number, loss: number, time: number }} Progress */

export class Trainer {
  /**
   * @param {TrainingSession} session
   * @param {() => Record<string, any>} batch the feeds of a step
   * @param {(progress: Progress) => unknown} show the next step waits for its promise
   * @param {number} [every] milliseconds between the calls of `show`
   */
  constructor(session, batch, show, every = 120) {
    this.session = session;
    this.batch = batch;
    this.show = show;
    this.every = every;
    this.isRunning = false;
    this.isStopping = false;
    /** Settled when no step is made any more. @type {Promise<void>} */
    this.done = Promise.resolve();
    this.loss = NaN;
    this.time = NaN;
    this.step = 0;
  }

  /** Forgets what it has measured. */
  reset() {
    Object.assign(this, { loss: NaN, time: NaN, step: 0 });
  }

  /** Resolves after these steps, or earlier when `stop` was called. @param {number} steps */
  train(steps) {
    if (this.isRunning) return this.done;
    const running = this.makeSteps(steps);
    this.done = running.catch(() => {});
    return running;
  }

  /** @param {number} steps */
  async makeSteps(steps) {
    Object.assign(this, { isRunning: true, isStopping: false });
    let drawn = 0;
    try {
      const goal = this.step + steps;
      // Steps whose numbers are not finite change nothing and do not count: the first ones, until the scale of the loss fits.
      for (let n = 0; n < 2 * steps && this.step < goal && !this.isStopping; n++) {
        const start = performance.now();
        this.note(await this.session.step(this.batch()), performance.now() - start);
        if (start - drawn < this.every) continue;
        drawn = start;
        await this.show(this);
      }
      this.isStopping = true;
      await this.show(this);
    } finally {
      this.isRunning = false;
    }
  }

  /** Resolves after the current step. */
  stop() {
    this.isStopping = true;
    return this.done;
  }

  /** @param {import('pyruntime').StepResult} result @param {number} time */
  note({ loss, step, applied }, time) {
    this.step = step;
    if (!applied) return; // the numbers of this batch are not finite, and it changed nothing
    this.loss = Number.isNaN(this.loss) ? loss : 0.9 * this.loss + 0.1 * loss;
    this.time = Number.isNaN(this.time) ? time : 0.9 * this.time + 0.1 * time;
  }
}

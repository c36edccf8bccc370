// Measures the runs of a session with the provider "auto" on the GPU, beside its runs on WebAssembly, and moves the session there
// if they are faster (docs/design/gpu.md#auto).

import { mapTensors } from '../../common/records.js';
import { residentId } from '../../run/resident_outputs.js';
import { ProviderTrial, WANTED } from '../../runtime/provider_trial.js';
import { lastRun } from '../files/model_file.js';

/** @import { WireValue } from '../../common/protocol.js' */
/** @import { Model } from '../../session/model.js' */
/** @typedef {Record<string, WireValue>} Feeds */

const IDLE = 200; // ms without a run before the GPU's Program is compiled, because Python would delay runs
const PATIENCE = 5000; // ms after which it is compiled even if runs follow each other
const POLL = 50; // ms

export class GpuTrial {
  /**
   * @param {number} reference see `ProviderTrial` @param {(running: Model) => Promise<Model>} open opens the model on the GPU
   * @param {(trial: ProviderTrial) => void} keep stores the choice for later visits
   */
  constructor(reference, open, keep) {
    this.trial = new ProviderTrial(reference);
    this.open = open;
    this.keep = keep;
    this.isMeasuring = false;
    this.hasEnded = false;
    /** Moves the session to this model, which it owns from then on. @type {(model: Model) => Promise<void>} */
    this.adopt = async (model) => model.release();
  }

  get why() {
    return this.trial.why;
  }

  /** Whether a run must have all data in its feeds, because the GPU is to be measured with them. @param {Feeds} feeds */
  lacksData(feeds) {
    return this.trial.state === WANTED && !this.isMeasuring && isResident(feeds);
  }

  /**
   * Counts a run on WebAssembly.
   * @param {Model} model @param {Feeds} feeds of the run @param {string[]} names of its outputs @param {number} milliseconds
   */
  took(model, feeds, names, milliseconds) {
    if (model.host.gpu || this.isMeasuring) return;
    const { trial } = this;
    const elements = Object.values(feeds).flat().reduce((sum, tensor) => sum + (tensor?.dims.reduce((all, n) => all * n, 1) ?? 0), 0);
    if (trial.took(elements, milliseconds)) this.keep(trial);
    if (trial.state === WANTED && !isResident(feeds)) this.measure(model, mapTensors(feeds, copy), names);
  }

  /** @param {Model} running on WebAssembly @param {Feeds} feeds @param {string[]} names */
  async measure(running, feeds, names) {
    this.isMeasuring = true;
    /** @type {Model | null} */
    let model = null;
    try {
      await untilIdle(() => this.hasEnded);
      if (this.hasEnded) return;
      model = await this.open(running);
      await this.time(model, feeds, names);
      if (this.trial.onGpu && !this.hasEnded) {
        const winner = model;
        model = null;
        await this.adopt(winner);
      }
    } catch (error) {
      this.trial.failed(/** @type {Error} */ (error).message);
    } finally {
      model?.release();
      this.isMeasuring = false;
    }
    if (!this.hasEnded) this.keep(this.trial);
  }

  /** Runs on the GPU until the trial has settled, or the session ends. @param {Model} model @param {Feeds} feeds @param {string[]} names */
  async time(model, feeds, names) {
    const fetches = Object.fromEntries(names.map((name) => [name, null]));
    for (let isWanted = true; isWanted && !this.hasEnded;) {
      const start = performance.now();
      await model.run(feeds, fetches, null);
      if (!model.host.gpu) throw new Error(model.moved[0]?.reason || 'it was lost');
      if (!model.latest.header.blocks.some(({ steps }) => steps.some(({ op }) => op === 'gpu'))) return this.trial.unused();
      isWanted = this.trial.tookOnGpu(performance.now() - start);
    }
  }

  /** Ends the trial of a released session. */
  end() {
    this.hasEnded = true;
  }
}

/** Whether a feed is an output that the worker keeps, without data. @param {Feeds} feeds */
const isResident = (feeds) => Object.values(feeds).flat().some((feed) => residentId(feed));

/** @param {import('../../common/protocol.js').WireTensor} tensor */
const copy = (tensor) => ({ ...tensor, data: 'gpu' in tensor.data ? tensor.data : tensor.data.slice() });

/** Waits until no session runs, at most PATIENCE. @param {() => boolean} hasEnded */
async function untilIdle(hasEnded) {
  const start = performance.now();
  const isBusy = () => performance.now() - lastRun.ended < IDLE && performance.now() - start < PATIENCE;
  do await new Promise((resolve) => setTimeout(resolve, POLL)); while (isBusy() && !hasEnded());
}

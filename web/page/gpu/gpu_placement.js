// Places a session on the page's GPU: opens it there, or moves it there from the worker.

import { race } from '../engine/cancellation.js';
import { executorCode } from '../executor/load_code.js';
import { pageGpu } from './page_gpu.js';

/** @import { CreateResult } from '../../common/protocol.js' */
/** @import { Cancellation } from '../engine/cancellation.js' */
/** @import { GpuSession } from '../executor/gpu_session.js' */

export class GpuPlacement {
  /**
   * @param {import('../sessions/worker_session.js').WorkerSession} worker compiles, and runs the session until it moves
   * @param {ReturnType<typeof import('../options/options.js').sessionOptions>} settings
   * @param {boolean} hasMoved whether the worker only compiles @param {() => void} onMove
   */
  constructor(worker, settings, hasMoved, onMove) {
    this.worker = worker;
    this.settings = settings;
    this.hasMoved = hasMoved;
    this.onMove = onMove;
    /** @type {Promise<GpuSession> | null} */
    this.session = null;
  }

  /**
   * Opens a session that was created for the page's GPU.
   * @param {CreateResult} created @param {import('../../gpu/device.js').Gpu} gpu @param {Cancellation | null} cancellation
   */
  async open(created, gpu, cancellation) {
    const open = async () => (await executorCode()).GpuSession.open(this.worker.caller, created, gpu, this.settings, cancellation);
    this.session = open().then((session) => this.watched(session));
    await race(cancellation, this.session, (session) => void session.release());
  }

  /** Moves the session to the page's GPU, if it is not there yet. */
  move() {
    this.session ??= this.moveOnce().catch((error) => {
      this.session = null;
      throw error;
    });
    return this.session;
  }

  async moveOnce() {
    const { worker, settings } = this;
    const gpu = await pageGpu(settings.device, settings.options.preset, settings.params.limits.gpuTimeout);
    const session = await (await executorCode()).moveToGpu(worker, settings, gpu);
    this.hasMoved = true;
    this.onMove();
    return this.watched(session);
  }

  /** @param {GpuSession} session */
  watched(session) {
    session.model.state.changed = this.worker.changed;
    return session;
  }

  /** The session on the page's GPU, or else the one in the worker. */
  async current() {
    return await this.session?.catch(() => null) ?? this.worker;
  }
}

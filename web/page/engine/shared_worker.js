// Connects to the engine's worker that all pages of an origin share (web/worker/page_router.js).

import { env } from 'onnxruntime-common';
import { SessionFailed } from '../../common/errors.js';
import { holdLifeline } from '../../common/lifeline.js';
import { HINT, trusted } from '../../common/spawn.js';
import { SHARED } from '../../threads/mailbox.js';

/** Whether all pages of the origin share the worker of this name. @param {string} name the option `worker` */
export const isForAll = (name) => name === 'shared' && 'SharedWorker' in globalThis && Boolean(globalThis.navigator?.locks);

/** A lock that the page holds until it ends: then the worker releases its sessions. */
export async function heldLock() {
  const name = `pyruntime page ${crypto.randomUUID()}`;
  await holdLifeline(name);
  return name;
}

/** Starts the worker if no page has. @param {string} url @returns {import('../../common/platform.js').Port} */
export function spawnShared(url) {
  if (!url.startsWith(`${globalThis.origin}/`)) throw new SessionFailed("worker: 'shared' needs the engine's files on the page's own server", { hint: HINT });
  const worker = new SharedWorker(trusted(url), { type: 'module', name: `${SHARED} ${env.versions.web}` }); // another release has its own
  const { port } = worker;
  const terminate = () => {
    port.postMessage({ leave: true });
    port.close();
  };
  const made = Object.assign(port, { onerror: null, terminate });
  worker.onerror = (event) => /** @type {import('../../common/platform.js').Port} */ (made).onerror?.(/** @type {ErrorEvent} */ (event));
  return made;
}

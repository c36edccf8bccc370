// Starts the engine as a SharedWorker, for all pages of an origin. What routes their calls is loaded with the first.

import { trainingCode } from './models/trainer_code.js';

/** @param {(port: MessagePort) => void} startEngine */
export function startShared(startEngine) {
  /** @type {Promise<import('./page_router.js').PageRouter> | undefined} */
  let shared;
  const scope = /** @type {{ onconnect?: (event: MessageEvent) => void }} */ (globalThis);
  scope.onconnect = ({ ports: [port] }) => {
    port.onmessage = async ({ data }) => {
      shared ??= trainingCode(data.params).then(({ PageRouter }) => new PageRouter(startEngine));
      (await shared).take(port, data);
    };
  };
}

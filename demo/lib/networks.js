// Networks that hosts may leave out, and that offline visits have only if an earlier visit stored them.

import * as ort from 'pyruntime';

/** Addresses of the networks that this browser has stored. @returns {Promise<string[]>} */
export const storedNetworks = () => ort.models.list().then((all) => all.map(({ url }) => url), () => []); // without storage: none

/** Whether a network is stored or the server has it. Offline, only opening it tells. @param {string} address */
export async function isThere(address) {
  const url = new URL(address, document.baseURI).href;
  return !navigator.onLine || (await storedNetworks()).includes(url) || fetch(url, { method: 'HEAD' }).then(({ ok }) => ok, () => true);
}

/** Why a model cannot be opened: offline, it is not stored. @param {unknown} cause @returns {unknown} */
export function offlineError(cause) {
  if (!/cannot fetch|to fetch|Load failed/.test(String(cause))) return cause; // the texts of sessions and of browsers
  return new Error('The networks of this page cannot be reached, and this browser has not stored them: open the page once while you are online.', { cause });
}

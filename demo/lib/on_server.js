// Networks that hosts may leave out, and that offline visits have only if an earlier visit stored them.

/** Whether the server has the file. Offline, only opening it tells. @param {string} address */
export async function isOnServer(address) {
  return !navigator.onLine || fetch(address, { method: 'HEAD' }).then(({ ok }) => ok, () => true);
}

/** Why a network cannot be opened: offline, it is not stored. @param {unknown} cause @returns {unknown} */
export function offlineError(cause) {
  if (navigator.onLine || !/fetch/.test(String(cause))) return cause;
  return new Error('You are offline, and this browser has not stored the networks of this page: open it once while you are online.', { cause });
}

// Networks that hosts may leave out, and that offline visits have only if an earlier visit stored them.

/** Whether the server has the file. Offline, only opening it tells, and a request would be an error in the console. @param {string} address */
export async function isOnServer(address) {
  return !navigator.onLine || fetch(address, { method: 'HEAD' }).then(({ ok }) => ok, () => true);
}

/** Why a model cannot be opened: offline, it is not stored. @param {unknown} cause @returns {unknown} */
export function offlineError(cause) {
  if (!/fetch/.test(String(cause))) return cause;
  return new Error('The networks of this page cannot be reached, and this browser has not stored them: open the page once while you are online.', { cause });
}

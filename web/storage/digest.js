/** SHA-256, in hexadecimal. @param {Uint8Array} bytes not in shared memory */
export async function digest(bytes) {
  const hash = await crypto.subtle.digest('SHA-256', /** @type {Uint8Array<ArrayBuffer>} */ (bytes));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Of bytes, which nobody changes: those of a model are asked for twice, at a millisecond a MB. @type {WeakMap<Uint8Array, Promise<string>>} */
const known = new WeakMap();

/** SHA-256, in hexadecimal. @param {Uint8Array} bytes not in shared memory, and not changed later */
export function digest(bytes) {
  let found = known.get(bytes);
  if (!found) known.set(bytes, found = hashed(bytes));
  return found;
}

/** The same of bytes that change later. @param {Uint8Array} bytes */
export async function hashed(bytes) {
  const hash = await crypto.subtle.digest('SHA-256', /** @type {Uint8Array<ArrayBuffer>} */ (bytes));
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

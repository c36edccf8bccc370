// Keeps values in this browser (IndexedDB), by name: drawings, photographs, and the weights that were learned from them.

const [DATABASE, STORE] = ['pyruntime-site', 'learned'];

/** @returns {Promise<IDBDatabase>} */
function open() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The result of a request. @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} ask @returns {Promise<any>} */
async function transact(mode, ask) {
  const database = await open();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const request = ask(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

/** @param {string} name @param {unknown} value what structured clones can be made of. Throws if the browser refuses. */
export const keep = (name, value) => transact('readwrite', (store) => store.put(value, name));

/** The value, or undefined if there is none or this browser keeps nothing. @param {string} name */
export const kept = (name) => transact('readonly', (store) => store.get(name)).catch(() => undefined);

/** @param {string} name */
export const forget = (name) => transact('readwrite', (store) => store.delete(name));

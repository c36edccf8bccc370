// What a start has done so far, as marks that every browser's developer tools show on their time line, each in the thread
// that made it. `python -m bench start` reads them.

/** @param {string} done */
export const mark = (done) => void performance.mark(`pyruntime ${done}`);

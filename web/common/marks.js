// Performance marks of the start: browsers' developer tools show them on the time line of each thread, and
// `python -m bench start` reads them.

/** @param {string} step that has ended */
export const mark = (step) => void performance.mark?.(`pyruntime ${step}`);

// Types of the Program, the seam between compiler and executors (docs/architecture.md, "Program").

/**
 * @typedef {object} ProgramData
 * @property {any} header
 * @property {Uint8Array[]} blobs
 * @property {any} python the Python object behind it, for host steps and specialisation
 */
export {};

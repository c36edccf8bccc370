// Zip archives: fflate, bundled by scripts/site.mjs.

export { zip } from 'fflate';

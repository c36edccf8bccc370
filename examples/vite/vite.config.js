// Isolated pages have shared memory, and with it threads; without the headers all works on one.
const headers = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };

export default { server: { headers }, preview: { headers }, build: { target: 'es2022' }, logLevel: 'warn' };

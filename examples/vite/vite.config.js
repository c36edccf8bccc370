// With these headers the page is cross-origin isolated and can use threads. Without them it uses one.
const headers = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };

export default { server: { headers }, preview: { headers }, build: { target: 'es2022' } };

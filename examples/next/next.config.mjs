// With these headers the page is cross-origin isolated and can use threads. Without them it uses one.
const headers = [
  { key: 'Cross-Origin-Opener-Policy', value: 'same-origin' },
  { key: 'Cross-Origin-Embedder-Policy', value: 'require-corp' },
];

export default { headers: async () => [{ source: '/:path*', headers }], turbopack: { root: import.meta.dirname } };

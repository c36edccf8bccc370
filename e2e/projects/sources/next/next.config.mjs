const headers = [
  { key: 'Cross-Origin-Opener-Policy', value: 'same-origin' },
  { key: 'Cross-Origin-Embedder-Policy', value: 'require-corp' },
];

export default {
  headers: () => [{ source: '/:path*', headers }],
  devIndicators: false,
  turbopack: { root: import.meta.dirname }, // or else Next.js takes the folder of a lock file further up for the project
  outputFileTracingRoot: import.meta.dirname,
};

import vue from '@vitejs/plugin-vue';

const headers = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };

export default { plugins: [vue()], server: { headers }, preview: { headers }, worker: { format: 'es' } };

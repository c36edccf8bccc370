export default { vite: { worker: { format: 'es' } }, devToolbar: { enabled: false } };

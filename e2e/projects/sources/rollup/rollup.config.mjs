import { nodeResolve } from '@rollup/plugin-node-resolve';

export default { input: ['start.js', 'worker.js'], output: { dir: 'dist', format: 'es' }, plugins: [nodeResolve({ browser: true })] };

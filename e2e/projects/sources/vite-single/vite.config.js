import { viteSingleFile } from 'vite-plugin-singlefile';

export default { plugins: [viteSingleFile()], worker: { format: 'es' } };

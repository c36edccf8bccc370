import * as ort from 'pyruntime';
import { $, milliseconds, Status } from './common.js';

const status = new Status($('#status'));
const start = performance.now();
try {
  await ort.boot(status.progress);
  const version = await ort.python('import sys; sys.version.split()[0]');
  const shared = globalThis.crossOriginIsolated ? 'shared memory' : 'no shared memory (this page is not cross-origin isolated)';
  status.done(`Python ${version} started in ${milliseconds(performance.now() - start)}, ${shared}`);
} catch (error) {
  status.failed(error);
}

import { sums } from './check.js';

sums().then((found) => postMessage(found));

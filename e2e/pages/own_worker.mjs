import './own_worker_ort.mjs';
import './own_worker.js';

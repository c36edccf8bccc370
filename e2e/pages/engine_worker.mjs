// A module service worker with the engine in it.
import '/dist/engine.sw.js';
import './own_worker.mjs';

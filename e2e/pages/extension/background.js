// The background of an extension: a service worker with the engine in it.
import './dist/engine.sw.js';
import './page.js';

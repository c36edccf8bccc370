// A classic service worker with the engine in it.
importScripts('/dist/engine.sw.js', '/own_worker.js');

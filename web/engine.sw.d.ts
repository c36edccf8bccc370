// Types of pyruntime/service-worker, which puts the engine into the thread of a service worker.

export {};

// Types of pyruntime/service-worker, which runs the engine in the thread of a service worker.

export {};

// The name of this build: a hash of the engine's sources, of the standard library and of the split interpreter.
// scripts/build_web.mjs inserts it.

export const BUILD = '';

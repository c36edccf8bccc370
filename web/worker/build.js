// What this build is called: the hash of the engine's sources, of the standard library and of the
// interpreter's halves. scripts/build_web.mjs puts it in.

export const BUILD = '';

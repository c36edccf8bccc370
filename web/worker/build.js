// What this build is called: the hash of the engine's sources and of the standard library. scripts/build_web.mjs puts it in.

export const BUILD = '';

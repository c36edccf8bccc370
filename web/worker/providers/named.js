// Which providers are users' (added_providers.js): all that the engine does not bring.

/** Those of a session that are users'. @param {{ executionProviders?: string[] }} options */
export const addedNames = ({ executionProviders = [] }) => executionProviders.filter((name) => name !== 'wasm' && name !== 'webgpu');

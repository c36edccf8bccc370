import { reactive } from 'vue';

export const paths = {};
/** Vue makes proxies of these. */
export const options = () => reactive({ executionProviders: ['wasm'], freeDimensionOverrides: { batch: 2 } });

// What is no provider: /broken.js?as=missing.

const compile = () => () => () => {};
const supports = () => '';
const EXPORTS = {
  missing: undefined,
  text: 'a provider',
  empty: {},
  'no compile': { name: 'no compile', supports },
  'no function': { name: 'no function', supports: '', compile },
  'no name': { name: '', supports, compile },
  options: { name: 'options', supports, compile, options: [] },
  taken: { name: 'wasm', supports, compile },
};
export default EXPORTS[new URL(import.meta.url).searchParams.get('as')];

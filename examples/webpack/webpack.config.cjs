module.exports = {
  mode: 'production',
  entry: './main.cjs',
  output: { path: `${__dirname}/dist`, filename: 'main.js' }, // the engine's files come there by themselves
  performance: false, // the interpreter is larger than what webpack takes for large
};

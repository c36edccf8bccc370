module.exports = {
  mode: 'production',
  entry: './main.cjs',
  output: { path: `${__dirname}/dist`, filename: 'main.js' }, // webpack copies the engine's files there
  performance: false, // no warning about the interpreter's size
};

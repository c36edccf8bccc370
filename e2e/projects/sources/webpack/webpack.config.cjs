// Rules that projects copy from each other: Babel over everything, .mjs as scripts, no file extensions needed.
const path = require('path');

module.exports = {
  mode: 'development',
  entry: './start.js',
  output: { path: path.resolve('dist'), filename: 'main.js' },
  module: {
    rules: [
      { test: /\.mjs$/, include: /node_modules/, type: 'javascript/auto', resolve: { fullySpecified: false } },
      { test: /\.m?js$/, exclude: /node_modules/, use: { loader: 'babel-loader', options: { presets: ['@babel/preset-env'] } } },
      { test: /\.(png|svg)$/, type: 'asset' },
    ],
  },
  ignoreWarnings: [/Critical dependency/],
  performance: false,
  devServer: { static: '.', client: false, hot: false },
};

const path = require('path');

module.exports = {
  entry: './start.js',
  output: { path: path.resolve('dist'), filename: 'main.js' },
  performance: false,
  devServer: { static: '.', client: false, hot: false },
};

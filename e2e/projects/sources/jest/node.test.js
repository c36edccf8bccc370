/** @jest-environment node */
const { sums } = require('./check.cjs');

test('sums', async () => {
  const { pyruntime, 'onnxruntime-web': peer } = await sums();
  expect(pyruntime).toBe('2,3,4,5,6,7');
  expect(peer).toBe('2,3,4,5,6,7');
}, 120_000);

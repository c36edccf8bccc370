import assert from 'node:assert/strict';
import { test } from 'node:test';
import { launch, serve } from 'pyruntime/testing';

test('a blank is read as some digit, on WebGPU, with threads', async () => {
  const server = await serve('public');
  const browser = await launch();
  const page = await browser.newPage();
  await page.goto(server.url);
  const digit = await page.locator('output:not(:empty)').textContent();
  assert.match(digit, /^\d$/);
  assert.equal(await page.evaluate('crossOriginIsolated'), true);
  await browser.close();
  await server.close();
});

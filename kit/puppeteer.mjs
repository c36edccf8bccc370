// Firefox or Chromium, driven by lines of JSON: [method, ...args] in, { result } or { error } out. Ends with its input.
// Usage: node kit/puppeteer.mjs firefox|chrome PATH_OF_BROWSER [ARGUMENT_OF_BROWSER …]

import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';

const [browser, executablePath, ...args] = process.argv.slice(2);
const timeout = 600_000; // ms
// Puppeteer asks Chromium to treat hidden pages as visible ones.
const ignoreDefaultArgs = ['--disable-background-timer-throttling', '--disable-backgrounding-occluded-windows', '--disable-renderer-backgrounding'];
const started = await puppeteer.launch({ browser, executablePath, args, ignoreDefaultArgs, headless: true, protocolTimeout: timeout, timeout: 60_000 });
const page = await started.newPage();
page.on('console', (message) => message.type() === 'error' && console.error(message.text()));
page.on('pageerror', (error) => console.error(error));

const methods = {
  version: () => started.version(),
  goto: async (url) => void await page.goto(url, { timeout }),
  wait: async (expression) => void await page.waitForFunction(expression, { timeout }),
  evaluate: (code, arg) => page.evaluate(`(${code})(${JSON.stringify(arg ?? null)})`),
  hide: async () => void await (await started.newPage()).bringToFront(),
};

console.log(JSON.stringify({ result: await methods.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const [method, ...args] = JSON.parse(line);
  const answer = await methods[method](...args).then((result) => ({ result }), (error) => ({ error: String(error) }));
  console.log(JSON.stringify(answer));
}
await started.close();

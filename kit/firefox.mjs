// Firefox, driven by lines of JSON: [method, ...args] in, { result } or { error } out. Ends with its input.
// Usage: node kit/firefox.mjs PATH_OF_FIREFOX

import { createInterface } from 'node:readline';
import puppeteer from 'puppeteer-core';

const timeout = 600_000; // ms
const firefox = await puppeteer.launch({ browser: 'firefox', executablePath: process.argv[2], headless: true, protocolTimeout: timeout, timeout: 60_000 });
const page = await firefox.newPage();
page.on('console', (message) => message.type() === 'error' && console.error(message.text()));
page.on('pageerror', (error) => console.error(error));

const methods = {
  version: () => firefox.version(),
  goto: async (url) => void await page.goto(url, { timeout }),
  wait: async (expression) => void await page.waitForFunction(expression, { timeout }),
  evaluate: (code, arg) => page.evaluate(`(${code})(${JSON.stringify(arg ?? null)})`),
};

console.log(JSON.stringify({ result: await methods.version() }));
for await (const line of createInterface({ input: process.stdin })) {
  const [method, ...args] = JSON.parse(line);
  const answer = await methods[method](...args).then((result) => ({ result }), (error) => ({ error: String(error) }));
  console.log(JSON.stringify(answer));
}
await firefox.close();

// Stores the site for offline visits after the page has loaded, which also makes it installable. Offline, marks links that lead
// to what is not stored.

const DELAY = 3000; // ms

/** @param {string} text */
const say = (text) => document.querySelector('#note')?.append(` ${text}`);

/** @param {string} path from the root of the site */
const at = (path) => new URL(`../${path}`, import.meta.url).href;

async function store() {
  /** @type {typeof import('../../web/offline/install.js')} */
  const { install, status } = await import(at('dist/offline.mjs'));
  const { versions } = navigator.onLine ? await install({
    worker: at('offline.sw.js'), lists: [at('site.json')], isolation: 'require-corp',
    onUpdate: () => say('Reload to use the new version.'),
  }) : await status();
  if (versions.length) say('Available offline.');
}

const mark = () => document.documentElement.toggleAttribute('data-offline', !navigator.onLine);
for (const change of ['online', 'offline']) addEventListener(change, mark);
mark();

const start = () => setTimeout(() => store().catch((error) => console.warn(error)), DELAY);
if (navigator.serviceWorker) {
  if (document.readyState === 'complete') start();
  else addEventListener('load', start);
}

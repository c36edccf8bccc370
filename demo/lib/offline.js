// Stores the site for offline visits after the page has loaded, which also makes it installable.

const DELAY = 3000; // ms

/** @param {string} text */
const say = (text) => document.querySelector('#note')?.append(` ${text}`);

/** @param {string} path from the root of the site */
const at = (path) => new URL(`../${path}`, import.meta.url).href;

async function store() {
  /** @type {{ install: typeof import('../../web/offline/install.js').install }} */
  const { install } = await import(at('dist/offline.mjs'));
  const { versions } = await install({
    worker: at('offline.sw.js'), lists: [at('site.json')], isolation: 'require-corp',
    onUpdate: () => say('Reload to use the new version.'),
  });
  if (versions.length) say('Available offline.');
}

const start = () => setTimeout(() => store().catch((error) => console.warn(error)), DELAY);
if (navigator.serviceWorker) {
  if (document.readyState === 'complete') start();
  else addEventListener('load', start);
}

// Keeps the site for visits without a network, once the page has what it needs for itself; so it can be installed, too.

const AFTER = 3000; // ms

/** @param {string} text */
const say = (text) => document.querySelector('footer')?.append(` ${text}`);

/** @param {string} path from the root of the site */
const at = (path) => new URL(path, import.meta.url).href;

async function keep() {
  /** @type {{ install: typeof import('../web/offline/install.js').install }} */
  const { install } = await import(at('dist/offline.mjs'));
  const { versions } = await install({
    worker: at('offline.sw.js'), lists: [at('site.json')], isolation: 'require-corp',
    onUpdate: () => say('A new version is there when you open it again.'),
  });
  if (versions.length) say('It works without a network.');
}

const start = () => setTimeout(() => keep().catch((error) => console.warn(error)), AFTER);
if (navigator.serviceWorker) {
  if (document.readyState === 'complete') start();
  else addEventListener('load', start);
}

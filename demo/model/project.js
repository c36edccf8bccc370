// A starter project: a page that runs the model, the engine's files, and how to start it.

const ENGINE = new URL('../dist/', import.meta.url);

/** @param {import('pyruntime').InferenceSession} session */
function pageOf(session) {
  const lines = session.inputMetadata.map((input) => {
    if (!input.isTensor) return `  // ${input.name}: not a tensor`;
    const dims = input.shape.map((dim) => (typeof dim === 'number' ? dim : 1));
    const size = dims.reduce((product, dim) => product * dim, 1);
    const data = input.type === 'string' ? `new Array(${size}).fill('')` : /^u?int64$/.test(input.type) ? `Array(${size}).fill(0n)` : `new Array(${size}).fill(0)`;
    return `  ${JSON.stringify(input.name)}: new Tensor('${input.type}', ${data}, [${dims.join(', ')}]), // ${input.shape.map((dim) => dim || '?').join(' × ')}`;
  });
  return `import { InferenceSession, Tensor } from './dist/ort.mjs';

const output = document.querySelector('output');
const session = await InferenceSession.create('model.onnx', {
  onProgress: ({ phase, loaded, total }) => { output.textContent = \`\${phase} \${total ? Math.round(100 * loaded / total) : ''}\`; },
});
const results = await session.run({
${lines.join('\n')}
});
output.textContent = Object.entries(results).map(([name, { dims, data }]) => \`\${name} [\${dims}]: \${[...data.slice(0, 8)].join(', ')} …\`).join('\\n');
`;
}

/** @param {string} name */
const htmlOf = (name) => `<!doctype html>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<link rel="icon" href="data:," />
<title>${name.replaceAll('<', '')}</title>
<h1>${name.replaceAll('<', '')}</h1>
<pre><output>Starting</output></pre>
<script type="module" src="main.js"></script>
`;

const README = `A page that runs your model in the browser. In this folder:

    python3 -m http.server

and open http://localhost:8000. main.js has the inputs: replace the zeros by your data.
dist/ is the engine; copy it, the model and the page to any static host. With the headers
Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp the model runs on several threads.
`;

/** @param {import('./take_away.js').Opened} opened @param {(text: string) => void} say @returns {Promise<BlobPart>} */
export async function starterProject({ session, name, file }, say) {
  if (!file) throw new Error('A project is made for models of one file.');
  const { zip } = await import(new URL('../vendor/zip.mjs', import.meta.url).href);
  const bytes = async (/** @type {Blob | Response} */ from) => new Uint8Array(await from.arrayBuffer());
  const text = (/** @type {string} */ content) => new TextEncoder().encode(content);
  /** @type {Record<string, Uint8Array>} */
  const files = { 'index.html': text(htmlOf(name)), 'main.js': text(pageOf(session)), 'README.txt': text(README), 'model.onnx': await bytes(file) };
  const list = await (await fetch(new URL('assets.json', ENGINE))).json();
  const needed = Object.entries(/** @type {Record<string, { page: boolean }>} */ (list.files)).filter(([, { page }]) => page);
  for (const [n, [path]] of needed.entries()) {
    say(`Adding the engine, file ${n + 1} of ${needed.length} …`);
    files[`dist/${path}`] = await bytes(await fetch(new URL(path, ENGINE)));
  }
  say('Compressing …');
  return new Promise((resolve, reject) => zip(files, { level: 1 }, (/** @type {Error | null} */ error, /** @type {Uint8Array<ArrayBuffer>} */ made) => (error ? reject(error) : resolve(made))));
}

// `Tensor.fromTexture`, `Tensor.fromImage` and `tensor.toTexture` on the page's GPU. Their code is in a file of its own, because few pages
// need it. It shares modules with the page: scripts/build_web.mjs builds it as a function that takes them.

import { Tensor } from 'onnxruntime-common';
import { importScript } from '../../common/import_script.js';
import { engineFiles } from '../engine/client.js';
import { SHARED } from '../executor/load_code.js';
import { pageGpu } from '../gpu/page_gpu.js';

/** @type {Promise<typeof import('./entry.js')> | null} */
let code = null;

async function load() {
  const { pictures } = await engineFiles();
  return (await importScript(pictures)).default((/** @type {keyof typeof SHARED} */ file) => SHARED[file]);
}

/** @param {'fromPicture' | 'toTexture'} name @returns {(value: any, options?: Record<string, any>) => Promise<any>} */
const onGpu = (name) => async (value, options = {}) => {
  code ??= load();
  code.catch(() => { code = null; });
  const [loaded, gpu] = await Promise.all([code, pageGpu(options.device)]);
  return loaded[name](gpu, value, options);
};

const { fromImage, fromTexture } = Tensor;
const fromPicture = onGpu('fromPicture');
const toTexture = onGpu('toTexture');

Object.assign(Tensor, {
  fromImage: (/** @type {any} */ image, /** @type {any} */ options) => (
    options?.location === 'gpu-buffer' ? fromPicture : /** @type {any} */ (fromImage))(image, options),
  fromTexture: (/** @type {any} */ texture, /** @type {any} */ options) => ( // others are WebGL's
    `${texture}`.startsWith('[object GPU') ? fromPicture : /** @type {any} */ (fromTexture))(texture, options),
});
Object.assign(Tensor.prototype, {
  /** @this {Tensor} @param {any} options */
  toTexture(options) {
    return toTexture(this, options);
  },
});

export { Tensor };

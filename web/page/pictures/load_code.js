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
  /** @type {import('../../common/import_script.js').Sharing<typeof import('./entry.js')>} */
  const module = await importScript(pictures);
  return module.default((file) => SHARED[file]);
}

/** @typedef {typeof import('./entry.js')} Code */
/** @import { PictureOptions } from './picture_options.js' */

/**
 * A function of the code, on the GPU that the options name.
 * @template {keyof Code} K @param {K} name
 * @returns {(value: Parameters<Code[K]>[1], options?: PictureOptions | null) => Promise<Tensor | GPUTexture>}
 */
const onGpu = (name) => async (value, given) => {
  const options = given ?? {};
  code ??= load();
  code.catch(() => { code = null; });
  const [loaded, gpu] = await Promise.all([code, pageGpu(options.device)]);
  return /** @type {(...args: unknown[]) => Promise<Tensor | GPUTexture>} */ (loaded[name])(gpu, value, options);
};

const fromPicture = onGpu('fromPicture');
const toTexture = onGpu('toTexture');
/** onnxruntime-common's own functions. fromImage changes its options. */
const { fromImage, fromTexture } = /** @type {Record<'fromImage' | 'fromTexture', typeof fromPicture>} */ (/** @type {unknown} */ (Tensor));

/**
 * On the CPU. onnxruntime-common takes `tensorFormat` for a bitmap, not for an <img>, and no `mean` without `bias`.
 * @param {any} image @param {any} [options]
 */
const fromImageOnCpu = async (image, options) => fromImage(
  options?.tensorFormat && image.naturalWidth ? await createImageBitmap(image) : image,
  options ? { ...options, norm: { mean: 255, bias: 0, ...options.norm } } : undefined,
);

Object.assign(Tensor, {
  /** @type {typeof fromPicture} */
  fromImage: (image, options) => (options?.location === 'gpu-buffer' ? fromPicture : fromImageOnCpu)(image, options),
  /** @type {typeof fromPicture} */
  fromTexture: (texture, options) => ( // others are WebGL's
    `${texture}`.startsWith('[object GPU') ? fromPicture : fromTexture)(texture, options),
});
Object.assign(Tensor.prototype, {
  /** @this {Tensor} @param {PictureOptions} options */
  toTexture(options) {
    return toTexture(this, options);
  },
});

export { Tensor };

// `Tensor.fromTexture`, `Tensor.fromImage` and `tensor.toTexture` on the page's GPU. Their code is in a file of its own, because few pages
// need it. It shares modules with the page: scripts/build_web.mjs builds it as a function that takes them.

import { Tensor } from 'onnxruntime-common';
import { InvalidInput } from '../../common/errors.js';
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
  const options = /** @type {PictureOptions} */ (Object.fromEntries(Object.entries(given ?? {}).filter(([, value]) => value !== null)));
  code ??= load();
  code.catch(() => { code = null; });
  const [loaded, gpu] = await Promise.all([code, pageGpu(options.device)]);
  return /** @type {(...args: unknown[]) => Promise<Tensor | GPUTexture>} */ (loaded[name])(gpu, value, options);
};

const fromPicture = onGpu('fromPicture');
const toTexture = onGpu('toTexture');
/** onnxruntime-common's own functions. fromImage changes its options. */
const { fromImage, fromTexture } = /** @type {Record<'fromImage' | 'fromTexture', typeof fromPicture>} */ (/** @type {unknown} */ (Tensor));

/** That function, with rejections of this package. @param {typeof fromPicture} make @returns {typeof fromPicture} */
const refusing = (make) => async (value, options) => {
  try {
    return await make(value, options ?? undefined);
  } catch (error) {
    throw new InvalidInput(/** @type {Error} */ (error).message, { cause: error });
  }
};

/**
 * On the CPU. onnxruntime-common takes `tensorFormat` for a bitmap, not for an <img>, and no `mean` without `bias`. It waits for ever for an
 * address without a picture.
 */
const fromImageOnCpu = refusing(async (/** @type {any} */ image, options) => {
  if (typeof image === 'string') await Object.assign(new Image(), { crossOrigin: 'Anonymous', src: image }).decode();
  return fromImage(
    options?.tensorFormat && image.naturalWidth ? await createImageBitmap(image) : image,
    options ? { ...options, norm: { mean: 255, bias: 0, ...options.norm } } : undefined,
  );
});

Object.assign(Tensor, {
  /** @type {typeof fromPicture} */
  fromImage: (image, options) => (options?.location === 'gpu-buffer' ? fromPicture : fromImageOnCpu)(image, options),
  /** @type {typeof fromPicture} */
  fromTexture: (texture, options) => ( // others are WebGL's
    Object.prototype.toString.call(texture).startsWith('[object GPU') ? fromPicture : fromTexture)(texture, options),
});
Object.assign(Tensor.prototype, {
  /** @this {Tensor} @param {PictureOptions} options */
  toTexture(options) {
    return toTexture(this, options);
  },
});

export { Tensor } from '../tensors/checked_tensor.js';

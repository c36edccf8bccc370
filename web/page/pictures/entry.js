// Tensors from pictures on the page's GPU, and back: dist/pictures.mjs, which load_code.js fetches.

export { fromPicture } from './from_picture.js';
export { toTexture } from './to_texture.js';

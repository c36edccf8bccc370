// Types of pictures that become tensors, and of tensors that become pictures: a part of index.d.ts.

/** Tensors [1, channels, height, width] that become pictures. */
export interface Drawn {
  /** Draws the tensor into a texture or a canvas; without one into a new texture (docs/api/gpu.md). */
  toTexture(options?: {
    readonly texture?: Global<'GPUTexture'> | undefined; readonly canvas?: Global<'HTMLCanvasElement' | 'OffscreenCanvas', never> | undefined; readonly format?: PictureFormat | undefined;
    readonly tensorLayout?: 'NCHW' | 'NHWC' | undefined; readonly norm?: PictureNorm | undefined; readonly device?: Global<'GPUDevice'> | undefined;
  }): Promise<Global<'GPUTexture'>>;
}
/** Types of the platform; `Otherwise` for those that the compiler does not know. */
export type Global<Name extends string, Otherwise = object> = Name extends Name
  ? (typeof globalThis extends { [k in Name]: { prototype: infer T } } ? T : Otherwise) : never;
export type PictureTexture = Global<'GPUTexture' | 'GPUExternalTexture'>;
/** What can become a tensor on the GPU. A string is an address. */
export type Picture = Blob | string | Global<'HTMLVideoElement' | 'VideoFrame' | 'HTMLCanvasElement' | 'OffscreenCanvas' | 'ImageBitmap' | 'ImageData'
  | 'HTMLImageElement', never>;
export type PictureFormat = 'RGB' | 'RGBA' | 'BGR' | 'RBG' | 'GRAY';
export type PictureType = 'float32' | 'float16' | 'uint8';
/** For each channel, or for red, green, blue and alpha. */
export interface PictureNorm {
  readonly mean?: number | readonly number[] | undefined;
  readonly bias?: number | readonly number[] | undefined;
}
/** How a picture becomes a tensor (docs/api/gpu.md). */
export interface PictureOptions<T extends PictureType = 'float32'> {
  readonly tensorFormat?: PictureFormat | undefined;
  readonly tensorLayout?: 'NCHW' | 'NHWC' | undefined;
  readonly dataType?: T | undefined;
  readonly norm?: PictureNorm | undefined;
  readonly resizedWidth?: number | undefined;
  readonly resizedHeight?: number | undefined;
  readonly crop?: { readonly x: number; readonly y: number; readonly width: number; readonly height: number } | undefined;
  readonly device?: Global<'GPUDevice'> | undefined;
}

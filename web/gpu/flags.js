// WebGPU's flags by name: https://www.w3.org/TR/webgpu/#buffer-usage

export const USAGE = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128, QUERY_RESOLVE: 512 };
export const TEXTURE = { COPY_SRC: 1, COPY_DST: 2, TEXTURE_BINDING: 4, RENDER_ATTACHMENT: 16 };
export const COMPUTE = 4; // GPUShaderStage
export const READ = 1; // GPUMapMode

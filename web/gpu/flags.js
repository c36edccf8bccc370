// WebGPU's flags by name: https://www.w3.org/TR/webgpu/#buffer-usage

export const USAGE = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128, QUERY_RESOLVE: 512 };
export const COMPUTE = 4; // GPUShaderStage
export const READ = 1; // GPUMapMode

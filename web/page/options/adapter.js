// Which GPU adapter sessions request.

import { env } from 'onnxruntime-common';
import { PRESETS } from './engine_options.js';

/** @param {unknown} device @returns {device is GPUDevice} */
export const isDevice = (device) => typeof GPUDevice !== 'undefined' && device instanceof GPUDevice;

/** Options of `requestAdapter`: from env.webgpu, or else from the preset. @param {string} [preset] */
export function adapterOptions(preset = 'latency') {
  const { powerPreference = PRESETS[preset].savesPower ? 'low-power' : 'high-performance', forceFallbackAdapter } = env.webgpu;
  return Object.fromEntries(Object.entries({ powerPreference, forceFallbackAdapter }).filter(([, value]) => value !== undefined));
}

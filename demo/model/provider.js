// The choice of where a model runs. Only a real GPU is offered as one.

import { $ } from '../common.js';
import { aboutGpu, findGpu } from '../lib/gpu.js';

export async function chooseProvider() {
  const choice = /** @type {HTMLSelectElement} */ ($('#provider'));
  const gpu = await findGpu();
  const ways = gpu.kind === 'gpu' ? [['GPU where faster', 'webgpu,wasm'], ['GPU where possible', 'webgpu'], ['Whichever is faster', 'auto']]
    : gpu.kind === 'software' ? [['Software WebGPU (slow)', 'webgpu']] : [];
  choice.append(...ways.map(([text, value]) => new Option(text, value)));
  $('#about-gpu').textContent = aboutGpu(gpu);
  const asked = new URLSearchParams(location.search).get('provider');
  if (asked && ways.some(([, value]) => value === asked)) choice.value = asked;
  return choice;
}

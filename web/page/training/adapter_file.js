// Adapters in files: safetensors with PEFT's names, and ONNX Runtime's `.onnx_adapter`.
// The worker decides where tensors belong; adapter_places.js for a Program.

import { InvalidInput } from '../../common/errors.js';
import * as safetensors from './safetensors.js';
import { warn } from '../../common/log.js';
import { checkConfig, unknownFields } from '../../runtime/adapter_config.js';
import { checkType } from '../../runtime/safetensors.js';
import * as onnxAdapter from './onnx_adapter.js';

/** @import { Stored } from './safetensors.js' */
/** config: PEFT's, empty if there is none. @typedef {{ tensors: Record<string, Stored>, config: Record<string, unknown> }} Adapter */
/** What reads an address, or null if there is nothing. @typedef {(address: string) => Promise<Uint8Array | null>} Fetches */

const [WEIGHTS, CONFIG] = ['adapter_model.safetensors', 'adapter_config.json'];

/**
 * @param {any} given an address, bytes, a Blob, a Response, or { file, config } @param {Fetches} fetches
 * @returns {Promise<Adapter>} Errors: InvalidInput
 */
export async function readAdapter(given, fetches) {
  const isPair = given && Object.getPrototypeOf(given) === Object.prototype && 'file' in given;
  const source = isPair ? given.file : given;
  const file = await bytesOf(source, fetches);
  if (onnxAdapter.isOnnxAdapter(file)) return { tensors: onnxAdapter.read(file), config: {} };
  const { tensors, metadata } = safetensors.read(file);
  for (const [name, { dtype }] of Object.entries(tensors)) checkType(name, dtype);
  const config = isPair && given.config !== undefined ? given.config : metadata.adapter_config ?? await configBeside(source, fetches);
  const found = await parsed(config, fetches);
  checkConfig(found);
  const unknown = unknownFields(new Map(Object.entries(found)), metadata);
  if (unknown) warn(unknown);
  return { tensors, config: found };
}

/** @param {any} source @param {Fetches} fetches @returns {Promise<Uint8Array>} */
async function bytesOf(source, fetches) {
  if (typeof source === 'string' || source instanceof URL) {
    const found = await fetches(String(source));
    if (!found) throw new InvalidInput(`there is no adapter at "${source}"`, { hint: 'check the address' });
    return found;
  }
  if (source?.arrayBuffer) return new Uint8Array(await source.arrayBuffer());
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  if (source?.byteLength >= 0) return new Uint8Array(source);
  throw new InvalidInput('an adapter is an address, bytes, a Blob, a Response, or { file, config }');
}

/** PEFT's second file, if the address is that of its first. @param {any} source @param {Fetches} fetches */
async function configBeside(source, fetches) {
  const address = typeof source === 'string' || source instanceof URL ? String(source) : '';
  if (!address.replace(/[?#].*/, '').endsWith(WEIGHTS)) return {};
  const found = await fetches(address.replace(WEIGHTS, CONFIG));
  return found ? new TextDecoder().decode(found) : {};
}

/** @param {any} config an object, its JSON, or an address @param {Fetches} fetches @returns {Promise<Record<string, unknown>>} */
async function parsed(config, fetches) {
  if (typeof config === 'object' && config !== null && !(config instanceof URL)) return config;
  const isJson = /^\s*[{[]/.test(String(config));
  const text = isJson ? String(config) : new TextDecoder().decode(await bytesOf(config, fetches));
  try {
    return JSON.parse(text);
  } catch {
    throw new InvalidInput("the adapter's configuration is no JSON", { hint: "give PEFT's adapter_config.json" });
  }
}

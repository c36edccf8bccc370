// The tokenizer and the chat template in a model's files. A file of its own, with the libraries that read them: it is loaded
// when a generator first needs it.

import { Template } from '@huggingface/jinja';
import { Tokenizer } from '@huggingface/tokenizers';
import { platform } from '../common/platform.js';
import { TEMPLATE, specialToken, tokenizerJson } from '../runtime/gguf_tokenizer.js';
import { storedBody } from '../storage/stored_models.js';
import { readMetadata } from './gguf_metadata.js';

/** A file: its address, which may be that of a file that a session has stored (option `cache`), or its bytes. @typedef {string | URL | Blob | FileSystemFileHandle | ArrayBuffer | Uint8Array<ArrayBuffer>} FileSource */
/** text: a Jinja template, by name; tokens: those that it knows by name, such as bos_token. @typedef {{ texts: Record<string, string>, tokens: Record<string, string> }} Templates */
/** @typedef {{ tokenizer?: Tokenizer, templates: Templates }} Found */

const GGUF = 'GGUF';
const TOKENS = ['bos_token', 'eos_token', 'unk_token', 'pad_token'];

/**
 * What a GGUF file, a tokenizer.json, a tokenizer_config.json or a chat_template.jinja has of both. Of a GGUF file, only the beginning is read.
 * @param {FileSource} source @param {AbortSignal} [signal] @returns {Promise<Found>}
 */
export async function readChatFile(source, signal) {
  return fromHead(await streamOf(source, signal), (bytes, isWhole) => {
    const isGguf = text(bytes.subarray(0, 4)) === GGUF;
    if (isGguf) {
      const metadata = readMetadata(bytes, isWhole);
      return metadata && inGguf(metadata);
    }
    return isWhole ? inText(text(bytes)) : null;
  });
}

/** @param {Uint8Array} bytes */
const text = (bytes) => new TextDecoder().decode(bytes);

/** @param {Record<string, unknown>} metadata @returns {Found} */
function inGguf(metadata) {
  const json = tokenizerJson(metadata);
  json.model.vocab = Object.fromEntries(json.model.vocab);
  const tokens = Object.fromEntries(['bos', 'eos'].map((name) => [`${name}_token`, specialToken(metadata, name)]).filter(([, token]) => token));
  return { tokenizer: tokenizerOf(json), templates: { texts: textsOf(metadata[TEMPLATE]), tokens } };
}

/** @param {string} found @returns {Found} */
function inText(found) {
  if (!/^\s*\{\s*["}]/.test(found)) return { templates: { texts: textsOf(found), tokens: {} } };
  const json = JSON.parse(found);
  const tokens = Object.fromEntries(TOKENS.filter((name) => json[name]).map((name) => [name, json[name].content ?? json[name]]));
  return { ...json.model && { tokenizer: tokenizerOf(json) }, templates: { texts: textsOf(json.chat_template), tokens } };
}

/** By name: a file has one text, or a list of them. @param {unknown} found @returns {Record<string, string>} */
export function textsOf(found) {
  if (typeof found === 'string') return found ? { default: found } : {};
  return Object.fromEntries((Array.isArray(found) ? found : []).map(({ name, template }) => [name, template]));
}

/** @param {object} json */
const tokenizerOf = (json) => new Tokenizer(json, { clean_up_tokenization_spaces: false }); // true removes spaces from the text

/** @param {string} text @param {Record<string, unknown>} variables */
export const render = (text, variables) => new Template(text).render(variables);

/** @param {FileSource} source @param {AbortSignal} [signal] @returns {Promise<ReadableStream<Uint8Array>>} */
async function streamOf(source, signal) {
  if (typeof source === 'string' || source instanceof URL) {
    const stored = await storedCopy(String(source)).catch(() => null); // without storage: none
    if (stored) return stored;
    const response = await fetch(source, signal ? { signal } : {});
    if (!response.ok || !response.body) throw new Error(`${source}: HTTP ${response.status}`);
    return response.body;
  }
  if ('getFile' in source) return (await source.getFile()).stream();
  return (source instanceof Blob ? source : new Blob([source])).stream();
}

/** @param {string} address */
const storedCopy = async (address) => storedBody(platform.address(address));

/**
 * Reads until `read`, called with ever more of the first bytes, returns a result.
 * @template T @param {ReadableStream<Uint8Array>} stream @param {(bytes: Uint8Array<ArrayBuffer>, isWhole: boolean) => T | null} read @returns {Promise<T>}
 */
async function fromHead(stream, read) {
  const reader = stream.getReader();
  let [bytes, size, next] = [new Uint8Array(1 << 16), 0, 1 << 16];
  try {
    for (;;) {
      const { done, value = new Uint8Array() } = await reader.read();
      if (size + value.length > bytes.length) bytes = enlarged(bytes, size + value.length);
      bytes.set(value, size);
      size += value.length;
      if (!done && size < next) continue;
      const found = read(bytes.subarray(0, size), done);
      if (found !== null) return found;
      next = 2 * size; // so that all attempts read twice what the last one reads
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** @param {Uint8Array} bytes @param {number} least */
function enlarged(bytes, least) {
  const larger = new Uint8Array(Math.max(least, 2 * bytes.length));
  larger.set(bytes);
  return larger;
}

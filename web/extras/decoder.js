// A decoder's session, for the shared code that writes texts (pyruntime/runtime/decoder.py).

import { elementSize, fromNumbers, viewOf } from '../common/elements.js';
import { Declared } from '../runtime/batching.js';
import { CachedDecoder, decoderLayout } from '../runtime/decoder.js';
import { encoderFeeds } from '../runtime/generation.js';
import { HALVES, fromHalves } from '../runtime/saved_text.js';
import { MOST } from '../runtime/writing.js';
import { copyBlock, emptyData, partsOf, product } from './parts.js';

/** @typedef {import('./parts.js').Session} Session */
/** @typedef {import('./parts.js').Tensor} Tensor */
/** @typedef {import('../runtime/decoder.js').Row} Row */
/** @typedef {import('../runtime/generation.js').Made} Made */

/** @param {{ name: string, isTensor?: boolean, shape?: readonly (number | string)[] }} metadata */
const declared = ({ name, isTensor, shape }) => new Declared(name, isTensor && shape ? [...shape] : null);

/** The bytes of a typed array. @param {import('./parts.js').Data} data */
const bytesOf = (data) => {
  const { buffer, byteOffset, byteLength } = /** @type {Uint8Array} */ (/** @type {unknown} */ (data));
  return new Uint8Array(buffer, byteOffset, byteLength);
};

/** Frees tensors on the GPU that are not used any more. @param {Tensor[]} tensors @param {Tensor[]} used */
export function free(tensors, used) {
  for (const tensor of new Set(tensors)) if (tensor.location === 'gpu-buffer' && !used.includes(tensor)) tensor.dispose();
}

export class Decoder extends CachedDecoder {
  /**
   * Throws InvalidInput for a model that cannot generate.
   * @param {Session} session with the option samplePositions
   * @param {Record<string, Tensor | undefined>} given inputs besides those of a text, such as an encoder's states; their tensors may come later
   * @param {unknown} [adapters] of its runs
   * @param {Record<string, string>} [continued] caches that names do not pair, with the outputs that continue them
   */
  constructor(session, given = {}, adapters = undefined, continued = {}) {
    const host = new Host(session, adapters);
    const names = Object.keys(given);
    const hint = 'it must be a decoder with a KV cache, and its session needs the options of TextGenerator.options()';
    const more = 'inputs: { name: tensor } gives what stays the same in all runs, caches: { name: output } continues a cache';
    const layout = decoderLayout(session.inputMetadata.map(declared), session.outputMetadata.map(declared), names, continued, hint, more);
    const short = layout.fed.filter(({ name }) => host.types[name] === 'uint16').map(({ name }) => name); // the API's type for bfloat16
    if (short.length) throw new host.parts.InvalidInput(`this model cannot generate text: ${short.join(', ')} has 16-bit elements that are no float16`, { hint });
    super(host, layout, names, Number(session.metadata?.customMetadataMap.context_length) || MOST);
    this.give(given);
  }

  /** @override @param {Record<string, Tensor | undefined>} tensors */
  give(tensors) {
    super.give(Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [name, tensor ?? null])));
  }
}

/** A session, and its tensors. */
class Host {
  /** @param {Session} session @param {unknown} adapters of its runs */
  constructor(session, adapters) {
    this.session = session;
    this.adapters = adapters;
    this.parts = partsOf(session);
    /** @type {Record<string, string>} */
    this.types = Object.fromEntries(session.inputMetadata.map(({ name, type }) => [name, type]));
    const { graphName = '', producerName = '' } = session.metadata ?? {};
    this.about = [graphName, producerName];
  }

  /** @param {Map<string, Tensor>} feeds @param {Made[]} made @param {string[]} names @param {AbortSignal | null} signal */
  async run(feeds, made, names, signal) {
    const values = Object.fromEntries(made.map(({ name, dims, values: numbers }) => [name, this.tensor(name, dims, numbers)]));
    const options = { ...signal && { signal }, ...this.adapters ? { adapters: this.adapters } : {} };
    const results = await this.session.run({ ...Object.fromEntries(feeds), ...values }, names, options);
    return names.map((name) => results[name]);
  }

  /** @param {Tensor} tensor it may be on the GPU @param {number} rows */
  async numbers(tensor, rows) {
    return Array.from(await tensor.getData(true), Number).slice(-rows * tensor.size / tensor.dims[0]);
  }

  /** @param {string} name @param {Tensor} tensor @returns {Promise<number[]>} */
  async plainNumbers(name, tensor) {
    const data = await tensor.getData();
    const form = HALVES[this.types[name]];
    return form ? fromHalves([...viewOf(bytesOf(data), 'uint16')].map(Number), form) : Array.from(data, Number);
  }

  /** In the worker if the tensor is there. @param {Tensor} tensor @param {number} count @param {number} axis */
  async first(tensor, count, axis) {
    const there = tensor.first?.(count, axis);
    if (there) return there;
    const { type, dims } = tensor;
    const data = await tensor.getData();
    const size = dims.map((dim, n) => (n === axis ? count : dim));
    const at = dims.map(() => 0);
    const part = emptyData(data, product(size));
    copyBlock({ data, dims, at }, { data: part, dims: size, at }, size);
    return new this.parts.Tensor(type, part, size);
  }

  /** @param {string} name @param {Row[]} rows @param {number} batch @param {number} axis */
  async joined(name, rows, batch, axis) {
    /** @type {Tensor[]} */
    const all = rows.map(({ pasts }) => pasts.get(name));
    const tensors = [...new Set(all)];
    const read = await Promise.all(tensors.map((tensor) => tensor.getData()));
    const parts = rows.map(({ row, count }, n) => {
      const { dims } = all[n];
      const size = dims.map((dim, k) => (k === batch ? 1 : k === axis ? Math.min(dim, count) : dim));
      return { data: read[tensors.indexOf(all[n])], dims, at: dims.map((dim, k) => (k === batch ? row : dim - size[k])), size };
    });
    const dims = parts[0].dims.map((_, k) => (k === batch ? parts.length : Math.max(...parts.map(({ size }) => size[k]))));
    const data = emptyData(parts[0].data, product(dims));
    for (const [row, part] of parts.entries()) copyBlock(part, { data, dims, at: dims.map((dim, k) => (k === batch ? row : dim - part.size[k])) }, part.size);
    return new this.parts.Tensor(all[0].type, data, dims);
  }

  /** @param {Tensor} tensor */
  async bytesOf(tensor) {
    return bytesOf(await tensor.getData());
  }

  /** @param {Tensor} tensor */
  sizes(tensor) {
    return [...tensor.dims];
  }

  /** @param {string} name */
  byteSize(name) {
    return elementSize(this.types[name]);
  }

  /** @param {string} name @param {Tensor} given */
  converted(name, given) {
    return given;
  }

  /** @param {string} name @param {number[]} dims */
  zeros(name, dims) {
    return this.tensor(name, dims, new Array(product(dims)).fill(0));
  }

  /** @param {import('../runtime/saved_text.js').SavedTensor} saved @param {Uint8Array} body */
  read({ dtype, dims, first, last }, body) {
    return new this.parts.Tensor(dtype, viewOf(body.slice(first, last), dtype), dims);
  }

  /** @param {{ type?: string } | null} error */
  isLost(error) {
    return error?.type === 'DeviceLost';
  }

  /** @param {Tensor[]} tensors @param {Tensor[]} used */
  free(tensors, used) {
    free(tensors, used);
  }

  /** @param {string} name @param {readonly number[]} dims @param {readonly number[]} values @returns {Tensor} */
  tensor(name, dims, values) {
    const type = this.types[name];
    const data = type === 'float16' ? Uint16Array.from(values, (bit) => bit && 0x3c00) : fromNumbers([...values], type); // halves of masks and zeros
    return new this.parts.Tensor(type, data, dims);
  }
}

/** A session whose outputs are inputs of a decoder, computed once for each text. */
export class Encoder {
  /** Throws InvalidInput if no output is an input of the decoder. @param {Session} session @param {Session} decoder */
  constructor(session, decoder) {
    this.session = session;
    this.parts = partsOf(session);
    this.feeds = encoderFeeds([...session.inputNames], session.outputMetadata.map(declared), [...decoder.inputNames]);
    /** The decoder's inputs. */
    this.given = this.feeds.map(({ feed }) => feed);
    if (this.feeds.every(({ isMask }) => isMask)) {
      throw new this.parts.InvalidInput(`no output of the encoder is an input of the decoder: ${session.outputNames.join(', ')}`, { hint: 'give it as inputs' });
    }
  }

  /**
   * The decoder's inputs: outputs of a run, and those of the tensors that the encoder does not read.
   * @param {Record<string, Tensor>} tensors @returns {Promise<Record<string, Tensor>>}
   */
  async run(tensors) {
    const isOwn = (/** @type {[string, Tensor]} */ [name]) => this.session.inputNames.includes(name);
    const own = Object.fromEntries(Object.entries(tensors).filter(isOwn));
    const others = Object.fromEntries(Object.entries(tensors).filter((entry) => !isOwn(entry)));
    if (!Object.keys(own).length) return others;
    const names = this.feeds.filter(({ isMask }) => !isMask).map(({ output }) => output);
    const made = await this.session.run(own, names, {});
    const dims = made[names[0]].dims.slice(0, 2);
    for (const { feed, output, isMask } of this.feeds) {
      others[feed] = isMask ? own[output] ?? new this.parts.Tensor('int64', new BigInt64Array(dims[0] * dims[1]).fill(1n), dims) : made[output];
    }
    return others;
  }
}

// pyruntime and onnxruntime-web behind one interface, since they have the same API.

import { typed } from './model.js';

/** @typedef {import('./model.js').Feeds} Feeds */
/** @typedef {import('./model.js').Outputs} Outputs */
/** @typedef {typeof import('onnxruntime-common')} Ort */

/** A session that runs repeatedly. */
export class OrtSession {
  /** @param {Ort} ort @param {any} session @param {Feeds} feeds */
  constructor(ort, session, feeds) {
    this.ort = ort;
    this.session = session;
    this.feeds = feeds;
    this.runs = 0;
    /** @type {Record<string, any>} */
    this.kept = Object.fromEntries(feeds.info.feeds.map((feed) => [feed.name, this.tensor(feed)]));
    this.feedback = Object.entries(feeds.info.feedback);
    // onnxruntime-web's proxy detaches the buffers of its feeds
    this.renewed = feeds.info.feeds.filter(({ name, frames }) => frames || (ort.env.wasm.proxy && !(name in feeds.info.feedback)));
  }

  /** @param {import('./model.js').FeedInfo} feed */
  tensor(feed) {
    const { type, dims, bytes } = this.feeds.at(feed, this.runs);
    return new this.ort.Tensor(/** @type {any} */ (type), typed(type, bytes), dims);
  }

  /** @param {{ signal?: AbortSignal }} [options] @returns {Promise<Outputs>} */
  async run(options = {}) {
    for (const feed of this.renewed) this.kept[feed.name] = this.tensor(feed);
    this.runs++;
    const outputs = await this.session.run(this.kept, options);
    for (const [input, output] of this.feedback) this.kept[input] = outputs[output];
    return outputs;
  }

  async release() {
    await this.session.release();
  }
}

/** @param {Ort} ort @param {string[]} providers */
export function ortRuntime(ort, providers) {
  return {
    ort,
    /** @param {Uint8Array} bytes @param {Feeds} feeds */
    async create(bytes, feeds) {
      const options = { executionProviders: providers, logSeverityLevel: /** @type {3} */ (3) };
      return new OrtSession(ort, await ort.InferenceSession.create(bytes, options), feeds);
    },
  };
}

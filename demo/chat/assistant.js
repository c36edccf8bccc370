// The model of the page: a session, and a generator of text on it.

import * as ort from 'pyruntime';
import { TextGenerator } from 'pyruntime/extras';

/** @typedef {import('pyruntime/extras').Message} Message */
/** @typedef {{ temperature: number, topP: number, repetitionPenalty: number, maxTokens: number, format?: { schema: Record<string, unknown> } }} Settings */

export class Assistant {
  /**
   * Opens a GGUF file: the model, its tokenizer and its chat template.
   * @param {string | File} model @param {(progress: ort.Progress) => void} onProgress
   */
  static async open(model, onProgress) {
    const options = { ...TextGenerator.options(), onProgress, cache: typeof model === 'string' };
    const opening = ort.InferenceSession.create(/** @type {any} */ (model), options);
    try {
      return new Assistant(await TextGenerator.create(opening, { tokenizer: model }), await opening);
    } catch (error) {
      opening.then((session) => session.release(), () => {});
      throw error;
    }
  }

  /** @param {TextGenerator} writer @param {ort.InferenceSession} session */
  constructor(writer, session) {
    this.writer = writer;
    this.session = session;
  }

  /**
   * The answer to a chat, piece by piece; returns what the generator says of it.
   * @param {readonly Message[]} messages @param {Settings} settings @param {AbortSignal} signal
   */
  answer(messages, settings, signal) {
    return this.writer.stream(messages, { ...settings, signal });
  }

  /** Bytes of the session, with its weights and caches. */
  async memory() {
    return (await this.session.memory()).arena;
  }

  release() {
    return this.session.release();
  }
}

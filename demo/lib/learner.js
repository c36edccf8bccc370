// Trains a network on the visitor's examples and asks it about others.

import * as ort from 'pyruntime';

/**
 * model: address of the network; options: of its training; input, output: their names in it; batch: examples of a step
 * tensorOf: the network's input for examples, which are varied at random for a step
 * @template T @typedef {{ model: string, options: Parameters<typeof ort.TrainingSession.create>[1], input: string, output: string, batch: number, tensorOf(examples: T[], isVaried?: boolean): ort.Tensor }} Task
 */

/** @template T */
export class Learner {
  /** @template T @param {Task<T>} task @param {import('./classes.js').Classes<T>} classes @param {(progress: import('pyruntime').Progress) => void} onProgress @returns {Promise<Learner<T>>} */
  static async open(task, classes, onProgress) {
    const session = await ort.TrainingSession.create(task.model, { ...task.options, onProgress });
    return new Learner(session, task, classes, await session.state());
  }

  /** @param {ort.TrainingSession} session @param {Task<T>} task @param {import('./classes.js').Classes<T>} classes @param {Uint8Array} start a checkpoint */
  constructor(session, task, classes, start) {
    this.session = session;
    this.task = task;
    this.classes = classes;
    this.start = start;
  }

  /** The feeds of a step. */
  batch() {
    const { batch, input, tensorOf } = this.task;
    const chosen = this.classes.draw(batch);
    const target = new ort.Tensor('int32', Int32Array.from(chosen, ({ slot }) => slot), [batch]);
    return { [input]: tensorOf(chosen.map(({ example }) => example), true), target };
  }

  /** The network's scores of each class, for each example. @param {T[]} examples @returns {Promise<number[][]>} */
  async scores(examples) {
    if (!examples.length) return [];
    const { input, output, tensorOf } = this.task;
    const found = await this.session.evaluate({ [input]: tensorOf(examples) }, [output]);
    return this.classes.scoresOf(found[output].data);
  }

  /** Results for the held-out examples. @returns {Promise<import('./confusion.js').Result[]>} */
  async test() {
    const { tests } = this.classes;
    const scores = await this.scores(tests.map(({ example }) => example));
    return tests.map(({ label }, n) => ({ label, scores: scores[n] })).filter((result) => result.scores);
  }

  /** Forgets what was learned. */
  startOver() {
    return this.session.load(this.start);
  }
}

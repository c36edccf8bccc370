// What the pages have in common whose network learns to tell the visitor's classes apart: buttons, numbers, curve, what is kept.

import { $, duration, messageOf, softmax, Status } from '../common.js';
import { forget, keep, kept } from './browser_store.js';
import { ClassList } from './class_list.js';
import { accuracyOf, showConfusion } from './confusion.js';
import { LearningCurve } from './learning_curve.js';
import { showShares } from './shares.js';
import { download, withMetadata } from './take_away.js';
import { Trainer } from './trainer.js';

/** @template T @typedef {import('./learner.js').Learner<T>} Learner */
/**
 * name: in the browser's store; need: what it needs before it can learn; current: the example that the visitor shows; pack: the
 * classes in a form that can be stored; unpack: the reverse; changed: the classes are others now
 * @template T @typedef {{ name: string, need: string, picture: (example: T) => Element, current: () => T | null, pack: () => Promise<unknown>, unpack: (found: any) => unknown, changed: () => unknown }} Parts
 */

/** @param {string} id @returns {HTMLButtonElement} */
export const button = (id) => $(`#${id}`);
/** What was kept, shared or opened, as a sentence. @param {string} text */
export const say = (text) => { $('#kept').textContent = text; };

/** @template T */
export class ClassifierPage {
  /** @param {import('./classes.js').Classes<T>} classes @param {Parts<T>} parts */
  constructor(classes, parts) {
    this.classes = classes;
    this.parts = parts;
    this.status = new Status($('#status'));
    this.curve = new LearningCurve(/** @type {SVGSVGElement} */ ($('#curve')));
    showConfusion($('#confusion'), [], []);
    this.list = new ClassList($('#classes'), classes, parts.picture, () => this.changed());
    /** @type {{ learner: Learner<T>, trainer: Trainer } | null} */
    this.ready = null;
  }

  /** @param {Learner<T>} learner @param {number} every milliseconds between tests */
  begin(learner, every) {
    const trainer = new Trainer(learner.session, () => learner.batch(), (progress) => this.showProgress(progress), every);
    this.ready = { learner, trainer };
  }

  /** Buttons by their ids. @param {Record<string, () => unknown>} further */
  connect(further) {
    const actions = {
      train: () => this.train(), over: () => this.startOver(), keep: () => this.keep(), forget: () => this.forget(), ...further,
    };
    for (const [id, act] of Object.entries(actions)) {
      button(id).addEventListener('click', async () => { try { await act(); } catch (error) { say(messageOf(error)); } });
    }
  }

  /** Updates everything that depends on the classes. */
  changed() {
    const { trainer } = this.ready ?? {};
    const [isRunning, { areEnough, all, isFull }] = [trainer?.isRunning ?? false, this.classes];
    $('#empty').hidden = all.length > 0;
    button('new').disabled = isFull;
    button('train').textContent = isRunning ? 'Stop' : trainer?.step ? 'Train on' : 'Train';
    button('train').disabled = !trainer || (!isRunning && !areEnough);
    button('over').disabled = isRunning || !trainer?.step;
    button('download').disabled = !trainer?.step;
    $('#need').textContent = areEnough ? '' : this.parts.need;
    if (!areEnough) trainer?.stop();
    this.parts.changed();
    this.guess().catch((error) => this.status.failed(error));
  }

  /** What the network sees in the example that the visitor shows. */
  async guess() {
    const example = this.parts.current();
    const hasLearned = this.ready !== null && this.ready.trainer.step > 0;
    const [scores] = hasLearned && example ? await /** @type {any} */ (this.ready).learner.scores([example]) : [];
    showShares($('#shares'), $('#guess'), this.classes.names, scores?.length ? softmax(scores) : null);
  }

  /** @param {import('./trainer.js').Progress} progress */
  async showProgress({ step, loss, time }) {
    const results = await this.ready?.learner.test() ?? [];
    const accuracy = accuracyOf(results);
    this.curve.add({ step, loss, accuracy });
    $('#loss').textContent = Number.isNaN(loss) ? '–' : loss.toFixed(3);
    $('#accuracy').textContent = accuracy === undefined ? '–' : `${Math.round(100 * accuracy)} %`;
    $('#time').textContent = Number.isNaN(time) ? '–' : duration(time);
    showConfusion($('#confusion'), this.classes.names, results);
    await this.guess();
  }

  async train() {
    if (!this.ready) return;
    const { trainer } = this.ready;
    if (trainer.isRunning) return void trainer.stop();
    this.status.busy('Learning');
    const start = performance.now();
    const running = trainer.train(Number(/** @type {HTMLInputElement} */ ($('#steps')).value));
    this.changed();
    try {
      await running;
      this.status.done(`Learned for ${((performance.now() - start) / 1000).toFixed(1)} s, ${trainer.step} steps in all. Try it.`);
    } catch (error) {
      this.status.failed(error);
    }
    this.changed();
  }

  async startOver() {
    await this.ready?.trainer.stop();
    await this.ready?.learner.startOver();
    this.ready?.trainer.reset();
    this.curve.clear();
    for (const id of ['loss', 'accuracy', 'time']) $(`#${id}`).textContent = '–';
    showConfusion($('#confusion'), this.classes.names, []);
    this.changed();
  }

  /** Starts over with other classes. @param {() => unknown} replace */
  async open(replace) {
    await this.ready?.trainer.stop();
    await replace();
    this.list.show();
    await this.startOver();
  }

  async keep() {
    const learned = this.ready ? { state: await this.ready.learner.session.state(), step: this.ready.trainer.step } : {};
    await keep(this.parts.name, { classes: await this.parts.pack(), points: this.curve.points, ...learned });
    say('Kept in this browser, with what the network has learned.');
  }

  async forget() {
    await forget(this.parts.name);
    await this.open(() => { this.classes.all = []; });
    say('Forgotten: this browser keeps nothing of it.');
  }

  /** Goes on from what the browser has kept. @param {(classes: any) => boolean} accepts */
  async restore(accepts) {
    const found = await kept(this.parts.name);
    if (!found || !this.ready || !accepts(found.classes)) return;
    await this.parts.unpack(found.classes);
    this.list.show();
    say('Kept in this browser since your last visit.');
    if (!found.step) return;
    await this.ready.learner.session.load(found.state);
    Object.assign(this.ready.trainer, { step: found.step });
    this.curve.points = found.points;
    this.curve.draw();
    await this.showProgress({ step: found.step, loss: NaN, time: NaN });
  }

  /** The network with the names of its classes. @param {string} name of the file */
  async download(name) {
    const model = /** @type {Uint8Array} */ (await this.ready?.learner.session.export());
    download(name, withMetadata(model, { classes: JSON.stringify(this.classes.slots) }));
  }
}

// What a visitor can take away: the compiled program, a trace, a report, and a project that runs the model.

import { make, messageOf } from '../common.js';
import { starterProject } from './project.js';

/**
 * session, name; file: of the model, if it is one file; feeds: of a run.
 * @typedef {{ session: import('pyruntime').InferenceSession, name: string, file: Blob | null, feeds: () => import('pyruntime').Feeds }} Opened
 */

/** @param {string} name @param {BlobPart} content */
function save(name, content) {
  const url = URL.createObjectURL(new Blob([content]));
  const anchor = /** @type {HTMLAnchorElement} */ (make('a', { href: url, download: name }));
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A trace of five runs for Perfetto or Chrome's viewer. @param {Opened} opened */
async function trace({ session, feeds }) {
  session.startProfiling();
  for (let n = 0; n < 5; n++) await session.run(feeds());
  return session.endProfiling();
}

/** @param {Opened} opened */
async function report({ session, name, feeds }) {
  const [explanation, memory, kernels] = [await session.explain(), await session.memory(), await session.profile(feeds())];
  const { inputMetadata: inputs, outputMetadata: outputs, metadata, timings } = session;
  return JSON.stringify({ model: name, browser: navigator.userAgent, inputs, outputs, metadata, timings, memory, kernels, explanation }, null, 1);
}

/** @param {Opened} opened */
export function takeAway(opened) {
  const stem = opened.name.replace(/\.\w+$/, '') || 'model';
  const told = make('p', { class: 'small soft', role: 'status', style: 'margin: 0.8rem 0 0' }, 'The program and the project run without this site.');
  const ways = /** @type {[id: string, text: string, name: string, make: () => Promise<BlobPart>][]} */ ([
    ['save-program', 'Compiled program (.pyrt)', `${stem}.pyrt`, async () => /** @type {BlobPart} */ (await opened.session.export())],
    ['save-trace', 'Trace', `${stem}.trace.json`, () => trace(opened)],
    ['save-report', 'Report (JSON)', `${stem}.report.json`, () => report(opened)],
    ['save-project', 'Starter project (.zip)', `${stem}-project.zip`, () => starterProject(opened, (text) => { told.textContent = text; })],
  ]);
  const buttons = ways.map(([id, text, name, content]) => {
    const button = /** @type {HTMLButtonElement} */ (make('button', { id }, text));
    button.addEventListener('click', async () => {
      button.disabled = true;
      told.textContent = `Making ${name} …`;
      try {
        save(name, await content());
        told.textContent = `Saved ${name}.`;
      } catch (error) {
        told.textContent = messageOf(error);
      }
      button.disabled = false;
    });
    return button;
  });
  return make('div', {}, make('div', { class: 'row' }, ...buttons), told);
}

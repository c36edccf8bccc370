// Cells of Python that run in the engine's interpreter.

import * as ort from 'pyruntime';
import { $, make, messageOf, Status } from '../common.js';
import { readState, writeState } from '../lib/url_state.js';

const CELLS = [
  'import sys\nfrom pyruntime.frontend import registry\n\nregistry.complete()\nf"Python {sys.version.split()[0]} knows {len(registry.table())} operators"',
  '# Two descriptions of tanh(x) * 2 for 5 x 4 numbers: what is computed, then the loops that become WebAssembly\nfrom pyruntime.codegen.schedule import lower\nfrom pyruntime.codegen.text import kernel_lines, loop_lines\nfrom pyruntime.frontend.tracer import Tracer\nfrom pyruntime.ir import dtype\nfrom pyruntime.ir.expr import X, tanh\n\nt = Tracer(lambda wanted: [])\nx = t.leaf("feed", (5, 4), dtype.F32)\nkernel = t.map(tanh(X) * 2.0, x).kernel\n"\\n".join([*kernel_lines(kernel), *loop_lines(lower(kernel, "cpu").code)])',
];

/** Puts the cells into the address. */
const link = () => writeState([.../** @type {NodeListOf<HTMLTextAreaElement>} */ (document.querySelectorAll('.cell textarea'))].map(({ value }) => value));

const status = new Status($('#status'));

/** @param {string} source */
function addCell(source) {
  const field = /** @type {HTMLTextAreaElement} */ (make('textarea', { class: 'listing', rows: Math.max(3, source.split('\n').length), spellcheck: 'false', 'aria-label': 'Python', style: 'width: 100%; color: inherit; field-sizing: content' }, source));
  const run = /** @type {HTMLButtonElement} */ (make('button', { class: 'small' }, 'Run (Shift + Enter)'));
  const output = make('pre', { class: 'listing', tabindex: 0, role: 'status', 'aria-label': 'Result', hidden: '' });
  const execute = async () => {
    run.disabled = true;
    output.hidden = false;
    output.textContent = 'Running …';
    output.textContent = await ort.python(field.value).then((value) => (typeof value === 'string' ? value : JSON.stringify(value, null, 1) ?? 'done'), messageOf);
    run.disabled = false;
  };
  run.addEventListener('click', execute);
  field.addEventListener('input', link);
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !event.shiftKey) return;
    event.preventDefault();
    execute();
  });
  $('#cells').append(make('section', { class: 'card cell', style: 'margin-bottom: 1rem' }, run, field, output));
  return execute;
}

/** The command that installs this site's wheel; offline visits do without it. */
async function showInstall() {
  const lock = new URL('../dist/pyodide-lock.json', import.meta.url);
  const { packages } = await (await fetch(lock)).json();
  const [{ file_name: file }] = Object.values(/** @type {Record<string, { file_name: string }>} */ (packages));
  $('#install').textContent = `%pip install ${new URL(file, lock).href}`;
}

async function main() {
  showInstall().catch(() => { $('#install').textContent = '# The address of the wheel is shown when you are online.'; });
  const linked = await readState();
  const isLinked = Array.isArray(linked) && linked.every((source) => typeof source === 'string');
  const [first] = (isLinked ? linked : CELLS).map(addCell);
  $('#add').addEventListener('click', () => addCell(''));
  await ort.boot(status.progress);
  status.done(isLinked ? 'Python has started. Somebody shared these cells: read them before you run them.' : 'Python has started');
  if (!isLinked) await first();
}

main().catch((error) => status.failed(error));

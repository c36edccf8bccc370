// Shared by all pages of the site: elements, the status line, chosen files and number formats.

/** @typedef {import('pyruntime').Progress} Progress */

/** @template {Element} [T=HTMLElement] @param {string} selector @returns {T} */
export function $(selector) {
  const found = document.querySelector(selector);
  if (!found) throw new Error(`this page has no ${selector}`);
  return /** @type {T} */ (found);
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

const PHASES = { boot: 'Starting Python', download: 'Downloading the model', compile: 'Compiling the model', init: 'Loading weights' };

/** The status line. `progress` is for the session option `onProgress`. */
export class Status {
  /** @param {Element} node */
  constructor(node) {
    this.node = node;
    this.bar = make('i');
    this.text = make('span', { role: 'status' }, 'Starting');
    this.seconds = make('span', { 'aria-hidden': 'true' });
    this.phase = '';
    this.timer = 0;
    node.className = 'status waiting';
    node.replaceChildren(make('span', { class: 'bar' }, this.bar), this.text, this.seconds);
    this.progress = this.progress.bind(this);
  }

  /** Without a known total the bar is animated. @param {Progress} progress */
  progress({ phase, loaded, total }) {
    if (phase !== this.phase) this.begin(phase);
    const share = total ? loaded / total : 0;
    this.node.className = share ? 'status' : 'status waiting';
    this.bar.style.width = share ? `${Math.round(100 * share)}%` : '';
    const amount = phase === 'download' ? ` ${bytes(loaded)}${total ? ` of ${bytes(total)}` : ''}` : '';
    this.text.textContent = `${PHASES[phase]}${amount}`;
  }

  /** @param {Progress['phase']} phase */
  begin(phase) {
    this.end('');
    this.phase = phase;
    const start = performance.now();
    this.timer = setInterval(() => { this.seconds.textContent = `${Math.round((performance.now() - start) / 1000)} s`; }, 1000);
  }

  /** @param {string} result a class of the line */
  end(result) {
    clearInterval(this.timer);
    this.phase = this.seconds.textContent = '';
    this.node.className = `status ${result}`;
  }

  /** Work of unknown length. @param {string} text */
  busy(text) {
    this.end('waiting');
    this.text.textContent = text;
  }

  /** @param {string} text */
  done(text) {
    this.end('done');
    this.text.textContent = text;
  }

  /** @param {unknown} error */
  failed(error) {
    this.end('failed');
    this.text.textContent = messageOf(error);
  }
}

/** The text of an error. Browsers give no reason when they cannot read a file. @param {unknown} error */
export function messageOf(error) {
  if (!(error instanceof Error)) return String(error);
  const unread = /\bNot(Readable|Found)Error\b/.test(`${error.name} ${error.message}`);
  return unread ? `The browser cannot read this file: it was moved, changed or deleted since you chose it, or it is too large for this browser. (${error.message})` : error.message;
}

/**
 * Calls back with files that the user selects by the label's input or drops anywhere on the page.
 * @param {Element} label @param {(files: File[]) => unknown} take
 */
export function onFiles(label, take) {
  const input = /** @type {HTMLInputElement} */ (label.querySelector('input'));
  input.addEventListener('change', () => {
    const files = [...input.files ?? []];
    input.value = ''; // so that the same files can be selected again
    if (files.length) take(files);
  });
  for (const kind of /** @type {const} */ (['dragover', 'dragleave', 'drop'])) {
    document.addEventListener(kind, (event) => {
      if (!event.dataTransfer?.types.includes('Files')) return; // dropped text is not handled here
      event.preventDefault();
      label.classList.toggle('over', kind === 'dragover');
      if (kind === 'drop') take([...event.dataTransfer.files]);
    });
  }
}

/** @param {import('pyruntime').Timings} timings */
export const readyText = (timings) => `Ready. Compile ${duration(timings.compile)} · load weights ${duration(timings.init)}`;

/** @param {number} time in milliseconds @returns {string} */
export function duration(time) {
  if (time >= 1000) return `${(time / 1000).toFixed(time < 9950 ? 1 : 0)} s`;
  return time < 10 ? `${time.toFixed(2)} ms` : time < 100 ? `${time.toFixed(1)} ms` : `${Math.round(time)} ms`;
}

/** With decimal prefixes, like the figures of the documentation. @param {number} size @returns {string} */
export function bytes(size) {
  if (size < 1000) return `${size} B`;
  const [unit, power] = size < 1e6 ? ['kB', 1e3] : size < 1e9 ? ['MB', 1e6] : ['GB', 1e9];
  return `${(size / power).toFixed(size / power < 10 ? 1 : 0)} ${unit}`;
}

/** @param {number[]} values @param {number} share 0.5 is the median @returns {number} */
export function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}

/** @param {ArrayLike<number>} scores @returns {number[]} */
export function softmax(scores) {
  const all = Array.from(scores);
  const top = Math.max(...all);
  const powers = all.map((score) => Math.exp(score - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

/** The value of a colour in the style sheet, for canvases. @param {string} name */
export function colour(name) {
  const probe = make('i', { style: `color: var(--${name}); display: none` });
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

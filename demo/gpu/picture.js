// A picture of a report, to share: the adapter, its limits, and how near each case comes to them.

import { colour, duration, make } from '../common.js';
import { HALF } from './report.js';

/** @import { Report } from './report.js' */

const [WIDTH, MARGIN, LINE] = [1200, 48, 30];
const FONT = 'system-ui, sans-serif';

/** @param {Report} report @param {string} name of the adapter @param {[string, string][]} figures @returns {HTMLCanvasElement} */
export function draw(report, name, figures) {
  const cases = report.cases.filter(({ share }) => share !== undefined);
  const canvas = /** @type {HTMLCanvasElement} */ (make('canvas', { width: WIDTH, height: 230 + LINE * cases.length + 2 * MARGIN }));
  const to = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  to.fillStyle = colour('paper');
  to.fillRect(0, 0, canvas.width, canvas.height);
  write(to, name, MARGIN, MARGIN + 26, 'ink', `600 34px ${FONT}`, WIDTH - 2 * MARGIN);
  write(to, `pyruntime on WebGPU · ${report.date.slice(0, 10)}`, MARGIN, MARGIN + 62, 'soft', `20px ${FONT}`);
  figures.forEach(([title, value], n) => {
    const x = MARGIN + n * (WIDTH - 2 * MARGIN) / figures.length;
    write(to, title, x, MARGIN + 112, 'soft', `18px ${FONT}`);
    write(to, value, x, MARGIN + 146, 'ink', `600 28px ${FONT}`);
  });
  write(to, 'Share of the nearer limit: multiply-adds or memory', MARGIN, MARGIN + 200, 'soft', `18px ${FONT}`);
  cases.forEach((one, n) => row(to, one, MARGIN + 216 + n * LINE));
  return canvas;
}

/** @param {CanvasRenderingContext2D} to @param {import('./report.js').Entry} one @param {number} y its top */
function row(to, { name, share, milliseconds: took }, y) {
  const [from, width] = [470, 440];
  write(to, name, MARGIN, y + 20, 'ink', `18px ${FONT}`, from - MARGIN - 12);
  to.fillStyle = colour('line');
  to.fillRect(from, y + 6, width, 16);
  to.fillStyle = colour(share < HALF ? 'warm' : 'accent');
  to.fillRect(from, y + 6, width * Math.min(1, share), 16);
  write(to, `${Math.round(100 * share)} %`, from + width + 20, y + 20, 'ink', `18px ${FONT}`);
  write(to, duration(took.median), from + width + 110, y + 20, 'soft', `18px ${FONT}`);
}

/** @param {CanvasRenderingContext2D} to @param {string} text @param {number} x @param {number} y @param {string} kind a colour @param {string} font @param {number} [most] width */
function write(to, text, x, y, kind, font, most) {
  to.font = font;
  to.fillStyle = colour(kind);
  to.fillText(text, x, y, most);
}

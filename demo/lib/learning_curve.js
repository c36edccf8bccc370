// Draws the loss over the steps of a training, and beside it an accuracy from 0 to 1.

const [HEIGHT, TOP, LEFT, BOTTOM] = [150, 20, 34, 18]; // pixels of the drawing
const MOST = 400; // points; then every second one is dropped

/** @typedef {{ step: number, loss: number, accuracy?: number }} Point */

export class LearningCurve {
  /** @param {SVGSVGElement} plot @param {Point[]} [points] */
  constructor(plot, points = []) {
    this.plot = plot;
    this.points = points;
    plot.setAttribute('role', 'img');
    new ResizeObserver(() => this.draw()).observe(plot);
    this.draw();
  }

  /** @param {Point} point */
  add(point) {
    if (!Number.isFinite(point.loss)) return;
    this.points.push(point);
    if (this.points.length > MOST) this.points = this.points.filter((_, i) => i % 2 === 1);
    this.draw();
  }

  clear() {
    this.points = [];
    this.draw();
  }

  draw() {
    if (this.points.length) return this.drawPoints();
    this.plot.setAttribute('height', `${TOP}`);
    this.plot.setAttribute('aria-label', 'No step yet');
    this.plot.innerHTML = '<text x="0" y="14" style="font-size: 13px">The curve of the loss appears here.</text>';
  }

  drawPoints() {
    this.plot.setAttribute('height', `${TOP + HEIGHT + BOTTOM}`);
    const [width, last] = [this.plot.clientWidth || 600, this.points[this.points.length - 1]];
    const [steps, most] = [last.step || 1, Math.max(0.1, ...this.points.map(({ loss }) => loss))];
    const x = (/** @type {number} */ step) => LEFT + ((width - LEFT) * step) / steps;
    const y = (/** @type {number} */ share) => TOP + HEIGHT * (1 - share);
    const line = (/** @type {string} */ colour, /** @type {(point: Point) => number | undefined} */ share) => {
      const all = this.points.flatMap((point) => (share(point) === undefined ? [] : [`${x(point.step).toFixed(1)},${y(share(point) ?? 0).toFixed(1)}`]));
      return `<polyline points="${all.join(' ')}" fill="none" stroke="var(--${colour})" stroke-width="2" stroke-linejoin="round"/>`;
    };
    const { accuracy } = last;
    const text = `loss ${last.loss.toFixed(2)}`;
    const second = accuracy === undefined ? '' : `<text x="${width}" y="12" text-anchor="end" style="fill: var(--good)">accuracy ${Math.round(100 * accuracy)} %</text>`;
    this.plot.setAttribute('aria-label', `After ${last.step} steps: ${text}${accuracy === undefined ? '' : `, accuracy ${Math.round(100 * accuracy)} %`}`);
    this.plot.innerHTML = `<line class="axis" x1="${LEFT}" x2="${width}" y1="${y(0)}" y2="${y(0)}"/>
      <text x="0" y="${y(1) + 4}">${most.toFixed(1)}</text><text x="0" y="${y(0) + 4}">0</text>
      <text x="${LEFT}" y="12" style="fill: var(--accent)">${text}</text>${second}
      <text x="${width}" y="${HEIGHT + TOP + 15}" text-anchor="end">${last.step} steps</text>
      ${line('good', ({ accuracy: share }) => share)}${line('accent', ({ loss }) => loss / most)}`;
  }
}

// Draws a model's graph: colours tell where a node runs, their strength how long it takes. Nodes can be chosen with pointer and keys.

import { duration, make } from '../common.js';
import { drawingOf } from './groups.js';

/** @typedef {import('./groups.js').Group} Group */
/** @typedef {import('./layout_worker.js').Layout} Layout */

const HEIGHT = 34; // pixels of a node
const MOST = 1500; // nodes that are drawn
const PLACES = { wasm: 'WebAssembly', webgpu: 'GPU', host: 'Python', control: 'control flow', view: 'moves no data', input: 'input or output' };

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...children);
  return node;
}

/** @param {import('./layout_worker.js').Request} request @returns {Promise<Layout>} */
function layOut(request) {
  const worker = new Worker(new URL('layout_worker.js', import.meta.url), { type: 'module' });
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => (data.error ? reject(new Error(`The graph cannot be laid out: ${data.error}`)) : resolve(data));
    worker.onerror = (event) => reject(new Error(`The graph cannot be laid out: ${event.message}`));
    worker.postMessage(request);
  }).finally(() => worker.terminate());
}

export class GraphView {
  /** @param {import('./onnx_graph.js').OnnxGraph} graph @param {(group: Group) => void} chosen */
  constructor(graph, chosen) {
    this.graph = graph;
    this.chosen = chosen;
    this.asCompiled = true;
    this.scale = 1;
    /** @type {readonly import('pyruntime').ExplainedNode[]} */
    this.explained = [];
    /** Milliseconds by node. @type {Map<string, number>} */
    this.times = new Map();
    /** @type {Map<string, Group>} */
    this.groups = new Map();
    /** @type {Map<string, SVGElement>} */
    this.shapes = new Map();
    this.canvas = make('div', { class: 'graph scroll', role: 'group', 'aria-label': 'The graph of the model. Arrow keys move between nodes.' });
    this.legend = make('p', { class: 'legend small soft' });
    this.node = make('div', {}, this.controls(), this.canvas, this.legend);
  }

  controls() {
    const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ pressed) => {
      const made = make('button', { class: 'small', 'aria-label': label }, text);
      made.addEventListener('click', pressed);
      return made;
    };
    const written = /** @type {HTMLInputElement} */ (make('input', { type: 'checkbox' }));
    written.addEventListener('change', () => {
      this.asCompiled = !written.checked;
      this.show(this.explained);
    });
    return make('div', { class: 'row graph-controls' }, button('+', 'Larger', () => this.zoom(1.25)), button('−', 'Smaller', () => this.zoom(0.8)),
      button('Fit', 'Fit the width', () => this.fit()), make('label', { class: 'small' }, written, ' every node of the file, also those that share one piece of code'));
  }

  /** @param {readonly import('pyruntime').ExplainedNode[]} explained */
  async show(explained) {
    this.explained = explained;
    const { groups, edges } = drawingOf(this.graph, explained, this.asCompiled);
    if (groups.size > MOST) return this.canvas.replaceChildren(make('p', { class: 'soft' }, `This graph has ${groups.size} kernels, too many to draw. The table below lists its nodes.`));
    const nodes = [...groups.values()].map(({ id, label }) => ({ id, width: Math.max(70, 22 + 7.4 * Math.min(label.length, 30)), height: HEIGHT }));
    const layout = await layOut({ nodes, edges });
    const lines = layout.lines.map((points) => svg('polyline', { class: 'edge', points: points.map(({ x, y }) => `${x},${y}`).join(' ') }));
    this.shapes = new Map(nodes.map(({ id, width }) => [id, this.shape(/** @type {Group} */ (groups.get(id)), layout.positions[id], width)]));
    this.groups = groups;
    const [first] = this.shapes.values();
    first?.setAttribute('tabindex', '0');
    this.size = layout;
    this.drawing = svg('svg', { viewBox: `0 0 ${layout.width} ${layout.height}` }, ...lines, ...this.shapes.values());
    this.canvas.replaceChildren(this.drawing);
    this.fit();
    this.colour();
  }

  /** @param {Group} group @param {[number, number]} middle @param {number} width */
  shape(group, [x, y], width) {
    const text = group.label.length > 30 ? `${group.label.slice(0, 29)}…` : group.label;
    const place = PLACES[/** @type {'input'} */ (group.place === 'output' ? 'input' : group.place)] ?? group.place;
    const shape = svg('g', { class: `node place-${group.place}`, role: 'button', tabindex: '-1', 'aria-description': place, transform: `translate(${x - width / 2} ${y - HEIGHT / 2})` },
      svg('rect', { width, height: HEIGHT, rx: 7 }), svg('text', { x: width / 2, y: 15, 'text-anchor': 'middle' }, text), svg('text', { class: 'time', x: width / 2, y: 28, 'text-anchor': 'middle' }));
    shape.addEventListener('click', () => this.choose(group, shape));
    shape.addEventListener('keydown', (event) => this.key(event, group, shape));
    return shape;
  }

  /** @param {Group} group @param {SVGElement} shape */
  choose(group, shape) {
    for (const other of this.shapes.values()) {
      other.classList.toggle('chosen', other === shape);
      other.setAttribute('tabindex', other === shape ? '0' : '-1');
    }
    this.chosen(group);
  }

  /** @param {KeyboardEvent} event @param {Group} group @param {SVGElement} shape */
  key(event, group, shape) {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (event.key === 'Enter' || event.key === ' ') this.choose(group, shape);
    else if (step) {
      const all = [...this.shapes.values()];
      const next = all[(all.indexOf(shape) + step + all.length) % all.length];
      shape.setAttribute('tabindex', '-1');
      next.setAttribute('tabindex', '0');
      next.focus();
    } else return;
    event.preventDefault();
  }

  /** @param {number} by */
  zoom(by) {
    this.scale *= by;
    this.drawing?.setAttribute('width', String((this.size?.width ?? 0) * this.scale));
  }

  fit() {
    this.scale = Math.min(1, Math.max(0.35, (this.canvas.clientWidth - 8) / (this.size?.width ?? 1)));
    this.zoom(1);
  }

  /** Chooses the node that takes longest. */
  chooseSlowest() {
    const taken = (/** @type {string} */ id) => (this.groups.get(id)?.explained ?? []).reduce((sum, { node }) => sum + (this.times.get(node) ?? 0), 0);
    const [slowest] = [...this.shapes.keys()].sort((a, b) => taken(b) - taken(a));
    const [group, shape] = [this.groups.get(slowest), this.shapes.get(slowest)];
    if (group && shape) this.choose(group, shape);
  }

  /** Shows how long nodes take. @param {readonly import('pyruntime').KernelTiming[]} timings */
  time(timings) {
    this.times = new Map();
    for (const { node, milliseconds: took } of timings) this.times.set(node, (this.times.get(node) ?? 0) + took);
    this.colour();
  }

  colour() {
    const sum = [...this.times.values()].reduce((a, b) => a + b, 0);
    const most = Math.max(1e-9, ...this.times.values());
    for (const [id, shape] of this.shapes) {
      const took = (this.groups.get(id)?.explained ?? []).reduce((all, { node }) => all + (this.times.get(node) ?? 0), 0);
      shape.setAttribute('style', `--share: ${sum ? took / most : 0.35}`);
      const text = shape.querySelector('.time');
      if (text) text.textContent = took ? duration(took) : '';
      shape.classList.toggle('timed', took > 0);
    }
    const parts = Object.entries(PLACES).filter(([place]) => this.drawing?.querySelector(`.place-${place}`)).map(([place, name]) => make('span', { class: `key place-${place}` }, make('i'), name));
    this.legend.replaceChildren(...parts, make('span', {}, sum ? `Stronger colours take longer; all kernels ${duration(sum)}.` : 'Run the model to see which nodes take long.'));
  }
}

// What is known of a node: where it runs, its kernels, time, attributes, shapes, and the code that computes it.

import { duration, make, messageOf } from '../common.js';
import { highlighted } from '../lib/highlight.js';

/** @typedef {import('./groups.js').Group} Group */
/** @typedef {import('./onnx_graph.js').OnnxGraph} OnnxGraph */

const TYPES = ['?', 'float32', 'uint8', 'int8', 'uint16', 'int16', 'int32', 'int64', 'string', 'bool', 'float16', 'float64', 'uint32', 'uint64', '?', '?', 'bfloat16'];

export class NodePanel {
  /** @param {import('pyruntime').InferenceSession} session @param {OnnxGraph} graph @param {() => import('pyruntime').Feeds} feeds */
  constructor(session, graph, feeds) {
    this.session = session;
    this.graph = graph;
    this.feeds = feeds;
    /** Milliseconds by node. @type {Map<string, number>} */
    this.times = new Map();
    this.node = make('section', { class: 'node-panel', 'aria-live': 'polite' }, make('p', { class: 'soft' }, 'Choose a node to see its kernel, shapes and code.'));
  }

  /** @param {Group} group */
  show(group) {
    const listing = make('pre', { class: 'listing', tabindex: 0, 'aria-label': 'Kernels and code' }, 'Listing the code …');
    const steps = group.explained.find(({ node }) => this.times.has(node)) ?? group.explained.find(({ into }) => !into);
    const took = group.explained.reduce((sum, { node }) => sum + (this.times.get(node) ?? 0), 0);
    const facts = /** @type {[string, string][]} */ ([
      ['Holds', group.explained.length ? '' : this.shape(group.label)], ['Where', steps?.place ?? ''], ['Why not on the GPU', steps?.why ?? ''], ['Time', took ? duration(took) : ''], ['Kernels', steps?.kernels.join(', ') ?? ''],
      ['Work units', steps?.work ? String(steps.work) : '']]);
    this.node.replaceChildren(make('h3', {}, group.label), list(facts), ...group.nodes.slice(0, 12).map((node) => this.written(node)), ...(steps ? [listing] : []));
    if (steps) this.list(steps.node, listing);
  }

  /** A node as the file has it. @param {import('./onnx_graph.js').OnnxNode} node */
  written({ op, name, inputs, outputs, attributes }) {
    const rows = [...inputs.map((value) => ['in', value]), ...outputs.map((value) => ['out', value])].filter(([, value]) => value)
      .map(([way, value]) => make('li', {}, `${way} `, make('code', {}, value), ` ${this.shape(value)}`));
    const texts = Object.entries(attributes).map(([key, value]) => `${key} = ${value}`);
    return make('details', {}, make('summary', {}, `${op}${name ? ` “${name}”` : ''}`), make('ul', { class: 'small' }, ...rows), ...(texts.length ? [make('p', { class: 'small mono' }, texts.join(' · '))] : []));
  }

  /** @param {string} name */
  shape(name) {
    const found = this.graph.weights.get(name) ?? this.graph.values.get(name);
    return found ? `${TYPES[found.type] ?? '?'} [${found.dims.join(', ')}]${this.graph.weights.has(name) ? ', a weight' : ''}` : '';
  }

  /** @param {string} label @param {HTMLElement} into */
  async list(label, into) {
    try {
      const options = { node: label, code: true };
      const text = await this.session.listing(null, options).catch(() => this.session.listing(this.feeds(), options)); // some models need feeds
      into.replaceChildren(highlighted(text || 'This node has no kernel of its own.', text.includes('(func ') ? 'wat' : 'wgsl'));
    } catch (error) {
      into.textContent = messageOf(error);
    }
  }
}

/** @param {[string, string][]} facts */
const list = (facts) => make('dl', { class: 'facts' }, ...facts.filter(([, value]) => value).flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)]));

// The nodes of a model as it runs: those that one kernel computes are one group.

/** @typedef {import('pyruntime').ExplainedNode} ExplainedNode */
/** @typedef {import('./onnx_graph.js').OnnxGraph} OnnxGraph */
/** @typedef {import('./onnx_graph.js').OnnxNode} OnnxNode */
/** explained: undefined for the model's inputs and outputs. @typedef {{ id: string, label: string, place: string, explained: ExplainedNode[], nodes: OnnxNode[] }} Group */
/** @typedef {{ groups: Map<string, Group>, edges: { from: string, to: string, value: string }[] }} Drawing */

const NO_STEPS = new Set(['constant', 'unused', 'init', 'plan']);

/** The report on each node of the file: in the order of the graph, else by name. @param {OnnxGraph} graph @param {readonly ExplainedNode[]} explained */
function matched(graph, explained) {
  const operator = (/** @type {ExplainedNode} */ { op }) => op.split('.').at(-1);
  if (graph.nodes.every(({ op }, i) => explained[i] && operator(explained[i]) === op)) return graph.nodes.map((_, i) => explained[i]);
  const byName = new Map(explained.map((found) => [found.node.split('"').at(-2), found]));
  return graph.nodes.map((node) => byName.get(node.name) ?? byName.get(node.outputs[0]));
}

/**
 * @param {OnnxGraph} graph @param {readonly ExplainedNode[]} explained @param {boolean} asCompiled whether nodes of one kernel are one group
 * @returns {Drawing}
 */
export function drawingOf(graph, explained, asCompiled) {
  const reports = matched(graph, explained);
  /** @type {Map<string, Group>} */
  const groups = new Map();
  /** By name of a value: the group that makes it. @type {Map<string, string>} */
  const makers = new Map();
  const add = (/** @type {string} */ id, /** @type {string} */ label, /** @type {string} */ place) => {
    if (!groups.has(id)) groups.set(id, { id, label, place, explained: [], nodes: [] });
    return /** @type {Group} */ (groups.get(id));
  };
  for (const name of graph.inputs.filter((input) => !graph.weights.has(input))) makers.set(name, add(`input ${name}`, name, 'input').id);
  const drawn = graph.nodes.map((node, i) => {
    const report = reports[i];
    if (report && NO_STEPS.has(report.place) && asCompiled) { // computed once, or folded into weights: what it reads flows on
      const source = node.inputs.map((name) => makers.get(name)).find((id) => id !== undefined);
      if (source === undefined) return null;
      groups.get(source)?.nodes.push(node);
      for (const name of node.outputs) makers.set(name, source);
      return null;
    }
    const group = add(asCompiled && report ? report.into || report.node : `node ${i}`, '', '');
    group.nodes.push(node);
    if (report) group.explained.push(report);
    for (const name of node.outputs) makers.set(name, group.id);
    return { node, id: group.id };
  });
  for (const group of groups.values()) if (group.explained.length || group.nodes.length && !group.label) Object.assign(group, described(group));
  const edges = new Map();
  const connect = (/** @type {string} */ value, /** @type {string} */ to) => {
    const from = makers.get(value);
    if (from !== undefined && from !== to) edges.set(`${from}\n${to}`, { from, to, value });
  };
  for (const found of drawn) for (const name of found?.node.inputs ?? []) connect(name, /** @type {{ id: string }} */ (found).id);
  for (const name of graph.outputs) connect(name, add(`output ${name}`, name, 'output').id);
  return { groups, edges: [...edges.values()] };
}

/** The label of a group: its operators; the place of the node that has the kernel. @param {Group} group */
function described({ id, explained, nodes }) {
  const main = explained.find(({ node }) => node === id) ?? explained.find(({ into }) => !into) ?? explained[0];
  const names = [...new Set(nodes.map(({ op }) => op))];
  const label = names.length > 3 ? `${names.slice(0, 3).join(' + ')} …` : names.join(' + ');
  return { label, place: main?.place ?? '' };
}

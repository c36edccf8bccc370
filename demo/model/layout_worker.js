// Lays out a graph, in a worker: large ones take seconds.

/** @typedef {{ nodes: { id: string, width: number, height: number }[], edges: { from: string, to: string }[] }} Request */
/** positions: middles. @typedef {{ width: number, height: number, positions: Record<string, [number, number]>, lines: { x: number, y: number }[][] }} Layout */

addEventListener('message', async (/** @type {MessageEvent<Request>} */ { data: { nodes, edges } }) => {
  try {
    const { Graph, layout } = await import(new URL('../vendor/dagre.mjs', import.meta.url).href);
    const graph = new Graph();
    graph.setGraph({ rankdir: 'TB', nodesep: 22, ranksep: 26, marginx: 12, marginy: 12 });
    graph.setDefaultEdgeLabel(() => ({}));
    for (const { id, width, height } of nodes) graph.setNode(id, { width, height });
    for (const { from, to } of edges) graph.setEdge(from, to);
    layout(graph);
    const positions = Object.fromEntries(nodes.map(({ id }) => [id, [graph.node(id).x, graph.node(id).y]]));
    const { width, height } = graph.graph();
    postMessage({ width, height, positions, lines: edges.map(({ from, to }) => graph.edge(from, to).points) });
  } catch (error) {
    postMessage({ error: String(error) });
  }
});

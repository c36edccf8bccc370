// The layout of graphs: dagre, bundled by scripts/site.mjs.

export { Graph, layout } from '@dagrejs/dagre';

// What the compiler made of a model, read off the Program's header.

/** @typedef {import('./program.js').Header} Header */

/** "Conv" of `Conv "conv1" (opset 11)`; fused nodes are joined by " + ". @param {string} label */
const opsOf = (label) => label.split(' + ').map((part) => part.split(' ')[0]).filter(Boolean);

/** @param {Header} header */
export function explain(header) {
  const steps = header.blocks.flatMap((block) => block.steps);
  /** @type {{ node: string, place: string, kernel: string }[]} */
  const calls = steps.flatMap((step) => (step.op === 'wasm' ? step.calls.map(({ node, kernel }) => ({ node, kernel, place: 'wasm' }))
    : 'node' in step && step.node ? [{ node: step.node, kernel: '', place: step.op === 'host' ? 'host' : 'control' }] : []));
  /** @type {Map<string, string>} */
  const nodes = new Map(calls.map(({ node, place }) => [node, place]));
  /** @type {Map<string, { op: string, nodes: number, place: string }>} */
  const operators = new Map();
  for (const [node, place] of nodes) {
    for (const op of opsOf(node)) {
      const entry = operators.get(op) ?? { op, nodes: 0, place };
      entry.nodes++;
      operators.set(op, entry);
    }
  }
  /** @type {Record<string, number>} */
  const placement = {};
  for (const { place } of calls) placement[place] = (placement[place] ?? 0) + 1;
  return {
    operators: [...operators.values()].sort((a, b) => b.nodes - a.nodes),
    placement,
    kernels: calls.length,
    functions: new Set(calls.map(({ kernel }) => kernel).filter(Boolean)).size,
    steps: steps.length,
    code: Object.values(header.modules).reduce((sum, [, size]) => sum + size, 0),
  };
}

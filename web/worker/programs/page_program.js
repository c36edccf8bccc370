// The copy of a session's Program that the page runs itself because its runs are short
// (docs/design/sessions.md#runs-in-the-page).

import { PART } from '../../session/program_table.js';
import { hostStep } from './program_file.js';

const LARGEST = 24 * 2 ** 20; // bytes of weights that the page may copy

/**
 * The Program of the latest run; null if it needs the worker: it calls Python or the GPU, its weights are too large to copy, or it makes
 * some outputs alone.
 * @param {import('../../session/model.js').Model} model @returns {Promise<import('../../common/protocol.js').Portable | null>}
 */
export async function programForPage(model) {
  const program = model.table.programs.get(model.table.latestKey);
  if (!program || program.header.states || model.host.gpu || hostStep(program.header) || model.table.latestKey.startsWith(PART)) return null;
  const { header, blob, module } = program;
  const weights = header.constants.filter((constant) => 'source' in constant);
  if (weights.reduce((sum, { size }) => sum + size, blob.length) > LARGEST) return null;
  const read = await model.weights(program);
  const copies = new Map(weights.map(({ source, offset, size }) => [`${source}:${offset}`, read(offset, size, source).slice()]));
  const { table: { latestKey: key }, specialiser: { needs }, host: { shared } } = model;
  return { key, needs, program: { header, blob, module }, weights: copies, shared };
}

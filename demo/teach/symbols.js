// Symbols in links and files: names with drawings.

/** @typedef {import('./drawings.js').Drawing} Drawing */
/** @typedef {import('../lib/classes.js').Classes<Drawing>} Symbols */

/** @param {any} stroke */
const isStroke = (stroke) => Array.isArray(stroke) && stroke.length >= 2 && stroke.length % 2 === 0 && stroke.every(Number.isFinite);
/** @param {any} drawing */
const isDrawing = (drawing) => Array.isArray(drawing) && drawing.length > 0 && drawing.every(isStroke);
/** @param {any} found */
const isSymbol = (found) => typeof found?.name === 'string' && Array.isArray(found.drawings) && found.drawings.every(isDrawing);

/** @param {Symbols} symbols */
export const toPlain = ({ all }) => all.map(({ name, examples }) => ({ name, drawings: examples }));

/** Replaces all symbols by those of a link, a file or this browser. Throws if they are none. @param {Symbols} symbols @param {unknown} found */
export function fromPlain(symbols, found) {
  if (!Array.isArray(found) || found.length > symbols.most || !found.every(isSymbol)) throw new Error('There are no drawings of this page in it.');
  symbols.all = [];
  for (const { name, drawings, slot } of found) symbols.add(name, drawings, slot);
}

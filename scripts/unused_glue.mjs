// Removes statements of Pyodide's JavaScript that no other code reaches. Emscripten includes OpenGL, SDL and windows
// with keyboard and mouse, for libraries that are loaded later and import them from `wasmImports`. The engine loads
// none.

import ts from 'typescript-5';

const { SyntaxKind: Kind } = ts;
const IMPORTS = 'wasmImports';
const EXPORTED = /^\s*Module\["(\w+)"\]\s*=\s*([\w$]+);?$/; // Module["_a"]=_a;

/** A statement of the function that makes the module. owners: names without whose use it has no effect; null: it always
 * has an effect @typedef {{ text: string, owners: string[] | null }} Part */

/** @param {string} text also names in texts and comments, which count as uses */
const words = (text) => text.match(/[\w$]+/g) ?? [];

/** Whether evaluating it has no effect. @param {any} node */
function isInert(node) {
  switch (node?.kind) {
    case undefined: case Kind.ArrowFunction: case Kind.FunctionExpression: case Kind.Identifier: case Kind.RegularExpressionLiteral:
    case Kind.StringLiteral: case Kind.NumericLiteral: case Kind.TrueKeyword: case Kind.FalseKeyword: case Kind.NullKeyword:
    case Kind.MethodDeclaration: case Kind.GetAccessor: case Kind.ShorthandPropertyAssignment: return true;
    case Kind.PrefixUnaryExpression: return isInert(node.operand);
    case Kind.PropertyAccessExpression: return isInert(node.expression);
    case Kind.ArrayLiteralExpression: return node.elements.every(isInert);
    case Kind.ObjectLiteralExpression: return node.properties.every(isInert);
    case Kind.PropertyAssignment: return node.name.kind !== Kind.ComputedPropertyName && isInert(node.initializer);
    default: return false;
  }
}

/** @param {any} node a statement @param {string} text @returns {string[] | null} */
function ownersOf(node, text) {
  if (node.kind === Kind.FunctionDeclaration) return [node.name.text];
  if (node.kind === Kind.VariableStatement) {
    const { declarations } = node.declarationList;
    const inert = declarations.every(({ name, initializer }) => name.kind === Kind.Identifier && isInert(initializer));
    return inert ? declarations.map(({ name }) => name.text) : null;
  }
  const [, name, value] = EXPORTED.exec(text) ?? [];
  if (name && name === value) return [name];
  const { left, operatorToken, right } = node.expression ?? {}; // _a.sig="ip";
  const sets = operatorToken?.kind === Kind.EqualsToken && left.kind === Kind.PropertyAccessExpression;
  return sets && left.expression.kind === Kind.Identifier && isInert(right) ? [left.expression.text] : null;
}

/** Reduces the functions that WebAssembly may import to those that the interpreter imports. @param {any} node @param
 * {string} code @param {Set<string>} imported */
function importsOf(node, code, imported) {
  const [{ initializer }] = node.declarationList.declarations;
  const kept = initializer.properties.filter(({ name }) => imported.has(name.text));
  return `var ${IMPORTS}={${kept.map(({ pos, end }) => code.slice(pos, end))}};`;
}

/** @param {any} statements @param {string} code @param {Set<string>} imported @returns {Part[]} */
function partsOf(statements, code, imported) {
  const found = statements.map((/** @type {any} */ node) => {
    const text = code.slice(node.pos, node.end);
    const [owner, ...more] = ownersOf(node, text) ?? [];
    if (!more.length && node.declarationList?.declarations[0].name.text === IMPORTS) return { text: importsOf(node, code, imported), owners: null };
    return { text, owners: owner ? [owner, ...more] : null };
  });
  const declared = new Set(statements.flatMap((/** @type {any} */ node) => node.name?.text ?? node.declarationList?.declarations.map(({ name }) => name.text) ?? []));
  return found.map(({ text, owners }) => ({ text, owners: owners?.some((name) => declared.has(name)) ? owners : null }));
}

/** @param {Part[]} parts @param {string[]} names that others use @returns {Set<Part>} the parts reached from these
 * names and from parts with an effect */
function reached(parts, names) {
  /** @type {Map<string, Part[]>} */
  const byName = new Map();
  for (const part of parts) for (const name of part.owners ?? []) byName.set(name, [...(byName.get(name) ?? []), part]);
  const kept = new Set(parts.filter(({ owners }) => !owners));
  const used = new Set(names);
  for (const { text } of kept) for (const word of words(text)) used.add(word);
  for (const name of used) { // grows meanwhile
    for (const part of byName.get(name) ?? []) {
      if (kept.has(part)) continue;
      kept.add(part);
      for (const word of words(part.text)) used.add(word);
    }
  }
  return kept;
}

/**
 * @param {string} code a module, of which one function is the most @param {string} others other JavaScript that uses it
 * @param {Set<string>} imported what the interpreter's WebAssembly imports
 * @returns {{ code: string, cut: number }} what is left, and how many statements are not
 */
export function withoutUnused(code, others, imported) {
  const { statements } = ts.createSourceFile('glue.mjs', code, ts.ScriptTarget.Latest);
  const factory = statements.find(({ kind, pos, end }) => kind === Kind.FunctionDeclaration && end - pos > code.length / 2);
  const inner = /** @type {any} */ (factory)?.body.statements;
  if (!inner) return { code, cut: 0 };
  const parts = partsOf(inner, code, imported);
  const kept = reached(parts, words(others));
  const text = parts.filter((part) => kept.has(part)).map(({ text }) => text).join('');
  return { code: code.slice(0, inner[0].pos) + text + code.slice(inner.at(-1).end), cut: parts.length - kept.size };
}

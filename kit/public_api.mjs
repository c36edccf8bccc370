// Prints the public methods and functions of the package's types as JSON: for each owner its methods, with whether they
// return a promise, and for each parameter its name, whether it may be absent, and the names of its properties that may be.

import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const ts = createRequire(import.meta.url)('typescript-5');
const FILES = ['index', 'extras', 'offline', 'quantize', 'pictures', 'training'];
const root = fileURLToPath(new URL('..', import.meta.url));
const names = FILES.map((name) => `${root}web/${name}.d.ts`);
const { ScriptTarget, ModuleKind, ModuleResolutionKind } = ts;
const program = ts.createProgram(names, {
  strict: true, noEmit: true, skipLibCheck: true, target: ScriptTarget.ESNext, module: ModuleKind.ESNext, moduleResolution: ModuleResolutionKind.Bundler,
});
const checker = program.getTypeChecker();

const isOptional = (symbol) => Boolean(symbol.flags & ts.SymbolFlags.Optional);
const filesOf = (symbol) => symbol.declarations?.map((node) => node.getSourceFile().fileName) ?? [];
/** Not of JavaScript or Node.js. */
const isOurs = (symbol) => filesOf(symbol).some((file) => !/\/lib\.[\w.]+\.d\.ts$|\/@types\//.test(file));
const isOfThisPackage = (symbol) => filesOf(symbol).some((file) => names.includes(file));

/** Names of the properties of a type's objects that may be absent. */
function optionsOf(type) {
  const parts = type.isUnion() ? type.types : [type];
  const objects = parts.filter((part) => part.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection) && !checker.isArrayType(part));
  const found = objects.flatMap((part) => part.getProperties().filter((one) => isOptional(one) && isOurs(one)).map((one) => one.name));
  return [...new Set(found)];
}

function parameterOf(symbol) {
  const node = symbol.valueDeclaration;
  const type = checker.getTypeOfSymbolAtLocation(symbol, node);
  return { name: symbol.name, isOptional: checker.isOptionalParameter(node), options: optionsOf(type) };
}

/** Overloads are joined: parameters by place. */
function methodOf(signatures) {
  const all = signatures.map((one) => one.getParameters().map(parameterOf));
  const isPromise = signatures.some((one) => checker.typeToString(one.getReturnType()).startsWith('Promise<'));
  return { isPromise, overloads: all };
}

function membersOf(type) {
  const found = {};
  for (const symbol of type.getProperties().filter(isOurs)) {
    const node = symbol.valueDeclaration ?? symbol.declarations[0];
    const signatures = checker.getTypeOfSymbolAtLocation(symbol, node).getCallSignatures();
    if (signatures.length && !isOptional(symbol)) found[symbol.name] = methodOf(signatures);
  }
  return found;
}

/** Owners by name: "Batcher" for its instances, "Batcher static" for the class, "extras module" for functions of a module. */
const owners = {};
for (const [n, file] of names.entries()) {
  const functions = owners[`${FILES[n]} module`] = {};
  for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)))) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    if (symbol.valueDeclaration) {
      const type = checker.getTypeOfSymbolAtLocation(symbol, symbol.valueDeclaration);
      const [calls, makes] = [type.getCallSignatures(), type.getConstructSignatures()];
      if (calls.length && isOfThisPackage(symbol)) functions[symbol.name] = methodOf(calls);
      else if (!calls.length) owners[`${symbol.name} static`] = { ...membersOf(type), ...makes.length && { new: methodOf(makes) } };
    }
    const instance = checker.getDeclaredTypeOfSymbol(symbol);
    if (symbol.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface)) owners[symbol.name] = membersOf(instance);
  }
}
console.log(JSON.stringify(Object.fromEntries(Object.entries(owners).filter(([, methods]) => Object.keys(methods).length))));

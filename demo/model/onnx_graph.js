// Reads the nodes of an ONNX file in place: weights are skipped, so files of any size take a moment.

const WINDOW = 2 ** 18; // bytes of a read
const LARGEST = 2 ** 22; // bytes of a node; larger ones hold a constant tensor
const decoder = new TextDecoder();

/** dims: numbers or names. @typedef {{ type: number, dims: (number | string)[] }} ValueType */
/** @typedef {{ name: string, op: string, domain: string, inputs: string[], outputs: string[], attributes: Record<string, string> }} OnnxNode */
/** weights: dims by name; values: declared types by name. @typedef {{ nodes: OnnxNode[], weights: Map<string, ValueType>, values: Map<string, ValueType>, inputs: string[], outputs: string[] }} OnnxGraph */
/** A field of a protobuf message; value: of a number, or the length of the bytes from `at` on. @typedef {{ number: number, wire: number, at: number, value: number }} Field */

/** Parts of a file. */
class Source {
  /** @param {Blob} blob */
  constructor(blob) {
    this.blob = blob;
    this.from = 0;
    this.bytes = new Uint8Array();
  }

  /** At least `size` bytes from `at` on, unless the file ends. @param {number} at @param {number} size */
  async read(at, size) {
    if (at < this.from || at + size > this.from + this.bytes.length) {
      this.bytes = new Uint8Array(await this.blob.slice(at, at + Math.max(size, WINDOW)).arrayBuffer());
      this.from = at;
    }
    return this.bytes.subarray(at - this.from);
  }
}

/** @param {Uint8Array} bytes @param {number} at @returns {[value: number, next: number]} */
function varint(bytes, at) {
  let [value, scale] = [0, 1];
  for (;;) {
    const byte = bytes[at++] ?? 0;
    value += (byte & 127) * scale;
    if (byte < 128) return [value, at];
    scale *= 128;
  }
}

/** The field that starts at `at` of the bytes. @param {Uint8Array} bytes @param {number} at @returns {[Field, next: number]} */
function fieldAt(bytes, at) {
  const [key, start] = varint(bytes, at);
  const [number, wire] = [Math.floor(key / 8), key % 8];
  if (wire === 0) {
    const [value, next] = varint(bytes, start);
    return [{ number, wire, at: start, value }, next];
  }
  if (wire === 2) {
    const [value, next] = varint(bytes, start);
    return [{ number, wire, at: next, value }, next + value];
  }
  if (wire !== 1 && wire !== 5) throw new Error('this is no ONNX model');
  const value = wire === 1 ? 8 : 4;
  return [{ number, wire, at: start, value }, start + value];
}

/** The fields of a message in the file; only their heads are read. @param {Source} source @param {number} at @param {number} end */
async function* fields(source, at, end) {
  while (at < end) {
    const [field, next] = fieldAt(await source.read(at, 32), 0);
    yield { ...field, at: at + field.at };
    at += next;
  }
}

/** The fields of a message in memory, by number. @param {Uint8Array} bytes @returns {Map<number, (Field & { bytes: Uint8Array })[]>} */
function message(bytes) {
  const found = new Map();
  for (let at = 0; at < bytes.length;) {
    const [field, next] = fieldAt(bytes, at);
    const own = { ...field, bytes: bytes.subarray(field.at, field.at + (field.wire === 0 ? 0 : field.value)) };
    found.set(field.number, [...found.get(field.number) ?? [], own]);
    at = next;
  }
  return found;
}

/** @param {ReturnType<typeof message>} found @param {number} number */
const texts = (found, number) => (found.get(number) ?? []).map(({ bytes }) => decoder.decode(bytes));

/** @param {Uint8Array} bytes @returns {number[]} */
function packed(bytes) {
  const all = [];
  for (let at = 0; at < bytes.length;) {
    const [value, next] = varint(bytes, at);
    all.push(value);
    at = next;
  }
  return all;
}

/** Signed, as attributes are. @param {number} value */
const signed = (value) => (value >= 2 ** 63 ? value - 2 ** 64 : value);

/** An attribute as text. @param {Uint8Array} bytes @returns {[name: string, value: string]} */
function attribute(bytes) {
  const found = message(bytes);
  const float = (/** @type {Uint8Array} */ part) => String(Number(new DataView(part.buffer, part.byteOffset).getFloat32(0, true).toPrecision(6)));
  const numbers = (/** @type {number} */ number) => (found.get(number) ?? []).flatMap((field) => (field.wire === 2 ? packed(field.bytes) : [field.value])).map(signed);
  const [name = ''] = texts(found, 1);
  const [f] = found.get(2) ?? [];
  if (f) return [name, float(f.bytes)];
  if (found.has(3)) return [name, String(numbers(3)[0])];
  if (found.has(4)) return [name, JSON.stringify(texts(found, 4)[0])];
  if (found.has(8)) return [name, `[${numbers(8).join(', ')}]`];
  return [name, found.has(6) ? 'a graph' : found.has(5) ? 'a tensor' : '…'];
}

/** @param {Uint8Array} bytes @returns {OnnxNode} */
function node(bytes) {
  const found = message(bytes);
  const attributes = Object.fromEntries((found.get(5) ?? []).map((field) => attribute(field.bytes)));
  return { name: texts(found, 3)[0] ?? '', op: texts(found, 4)[0] ?? '', domain: texts(found, 7)[0] ?? '', inputs: texts(found, 1), outputs: texts(found, 2), attributes };
}

/** @param {Uint8Array} bytes of a ValueInfo @returns {[name: string, ValueType]} */
function value(bytes) {
  const found = message(bytes);
  const tensor = message(message(found.get(2)?.[0].bytes ?? new Uint8Array()).get(1)?.[0].bytes ?? new Uint8Array());
  const shape = message(tensor.get(2)?.[0].bytes ?? new Uint8Array());
  const dims = (shape.get(1) ?? []).map((dim) => {
    const own = message(dim.bytes);
    return own.get(1)?.[0].value ?? texts(own, 2)[0] ?? '?';
  });
  return [texts(found, 1)[0] ?? '', { type: tensor.get(1)?.[0].value ?? 0, dims }];
}

/** The name and dims of a weight. @param {Source} source @param {Field} field @returns {Promise<[name: string, ValueType]>} */
async function weight(source, field) {
  /** @type {number[]} */
  const dims = [];
  let [name, type] = ['', 0];
  for await (const part of fields(source, field.at, field.at + field.value)) {
    if (part.number === 1) dims.push(...(part.wire === 2 ? packed((await source.read(part.at, part.value)).subarray(0, part.value)) : [part.value]));
    else if (part.number === 2) type = part.value;
    else if (part.number === 8) name = decoder.decode((await source.read(part.at, part.value)).subarray(0, part.value));
  }
  return [name, { type, dims }];
}

/** Errors: Error if this is no ONNX model. @param {Blob} blob @returns {Promise<OnnxGraph>} */
export async function readGraph(blob) {
  const source = new Source(blob);
  /** @type {OnnxGraph} */
  const graph = { nodes: [], weights: new Map(), values: new Map(), inputs: [], outputs: [] };
  for await (const part of fields(source, 0, blob.size)) {
    if (part.number !== 7) continue;
    for await (const field of fields(source, part.at, part.at + part.value)) await take(graph, source, field);
  }
  return graph;
}

/** @param {OnnxGraph} graph @param {Source} source @param {Field} field of the graph */
async function take(graph, source, field) {
  if (field.number === 5) return void graph.weights.set(...await weight(source, field));
  if (![1, 11, 12, 13].includes(field.number) || field.value > LARGEST) return;
  const bytes = (await source.read(field.at, field.value)).slice(0, field.value);
  if (field.number === 1) return void graph.nodes.push(node(bytes));
  const [name, type] = value(bytes);
  graph.values.set(name, type);
  if (field.number === 11) graph.inputs.push(name);
  if (field.number === 12) graph.outputs.push(name);
}

// Validates a Program: against the schema, and by rules that a schema cannot express. pyruntime/program/validate.py is its twin and
// describes the rules; tests/test_contract.py checks that both give the same messages.

import { InvalidModel } from '../../common/errors.js';
import { elementSize } from '../../common/elements.js';
import { symbols } from '../../common/dims.js';
import { refusal } from './schema.js';

/** @typedef {import('../../common/program.js').Header} Header */
/** @typedef {import('../../common/program.js').TensorValue} TensorValue */
/** @typedef {import('../../common/program.js').Call} Call */
/** @typedef {import('../../common/program.js').Dim} Dim */

const READABLE = ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'bool'];

/** Bytes of an element in linear memory; 0 for strings, which are not in it. @param {string} dtype */
const storedSize = (dtype) => (dtype === 'string' ? 0 : elementSize(dtype));

/** @param {any} header @param {number} blob its bytes */
export function validate(header, blob) {
  const length = (/** @type {string} */ key) => (Array.isArray(header?.[key]) ? header[key].length : 0);
  const wrong = refusal(header, { buffers: length('buffers'), blocks: length('blocks'), blob });
  if (wrong) refuse(`the header${wrong}`);
  new Flow(header).program();
}

/** @param {string} what @returns {never} */
function refuse(what) {
  throw new InvalidModel(`the program is damaged: ${what}`, { hint: 'export it again' });
}

/** Walks through a Program as an executor does, and tracks which symbols and buffers have values. */
class Flow {
  /** @param {Header} header */
  constructor(header) {
    this.header = header;
    this.buffers = header.buffers;
    /** Symbols with a value. @type {Set<string>} */
    this.known = new Set();
    /** Buffers with a value. @type {Set<number>} */
    this.live = new Set();
    /** Blocks that some step runs. @type {Set<number>} */
    this.entered = new Set();
  }

  program() {
    const { header, buffers } = this;
    buffers.forEach((buffer, n) => {
      if (Number(buffer.size) < 0) refuse(`buffer ${n} has ${buffer.size} bytes`);
      if (buffer.further) this.further(buffer, n, buffer.further);
    });
    for (const constant of header.constants) this.constant(constant);
    this.steps(0, new Set(this.live));
    for (const { dims } of header.inputs) for (const d of dims) if (typeof d === 'string') this.known.add(d);
    for (const { name, room } of header.inputs) if (room) this.take(room, `input "${name}"`);
    for (const { name, buffer } of header.inputs) this.make([buffer], `input "${name}"`);
    for (const value of header.inputs) this.tensor(value, `input "${value.name}"`);
    const names = new Set(header.inputs.map(({ name, item }) => JSON.stringify([name, item])));
    if (names.size < header.inputs.length) refuse('two inputs have one name');
    if (header.types) declared(header.inputs, header.types.inputs);
    this.steps(1, new Set(header.inputs.map(({ buffer }) => buffer)));
    for (const { name, value } of header.outputs) for (const v of tensors(value)) this.tensor(v, `output "${name}"`);
  }

  /** @param {import('../../common/program.js').InputRoom} room @param {string} what */
  take({ least, places, mixed = 0 }, what) {
    this.bound([least, mixed], what);
    this.known.add(places);
  }

  /**
   * @param {import('../../common/program.js').Buffer} buffer @param {number} n
   * @param {import('../../common/program.js').Further} further
   */
  further({ size, host, memory: provider }, n, [memory, address]) {
    const bytes = this.header.memories?.[memory - 1];
    if (bytes === undefined || typeof size !== 'number' || address + size > bytes) refuse(`buffer ${n} does not fit its memory`);
    if (host || provider) refuse(`buffer ${n} is in two memories`);
  }

  /** @param {any} constant */
  constant({ buffer: number, dtype, strings, blob, size: bytes, unpack }) {
    const what = `the constant of buffer ${number}`;
    const { size, host, memory } = this.buffers[number];
    this.make([number], what);
    if (Boolean(strings) !== Boolean(host)) refuse(`${what} is of another type`);
    if (strings) return;
    const item = storedSize(dtype);
    const given = blob ? blob[1] : bytes;
    const count = typeof size === 'number' && item ? Math.floor(size / (memory ? Math.min(item, 4) : item)) : -1;
    if (given !== (unpack ? Math.ceil((count * unpack) / 8) : count * item)) refuse(`${what} has ${given} bytes, which do not fill it`);
  }

  // ── buffers and symbols ──

  /** @param {Iterable<number>} numbers @param {string} what */
  make(numbers, what) {
    for (const n of numbers) {
      if (this.live.has(n)) refuse(`${what} makes buffer ${n} a second time`);
      this.live.add(n);
      this.bound([this.buffers[n].size], what);
    }
  }

  /** @param {Iterable<number>} numbers @param {Set<number>} mine @param {string} what */
  drop(numbers, mine, what) {
    for (const n of numbers) {
      if (!this.live.has(n) || !mine.has(n) || this.buffers[n].further) refuse(`${what} frees buffer ${n}, which it does not own`);
      this.live.delete(n);
    }
  }

  /** @param {Dim[]} dims @param {string} what */
  bound(dims, what) {
    for (const d of dims) {
      const name = [...symbols(d)].sort().find((symbol) => !this.known.has(symbol));
      if (name !== undefined) refuse(`${what} mentions "${name}" before it has a value`);
    }
  }

  /**
   * Checks that a value exists in this memory, has one of these types, and fits its buffer.
   * @param {TensorValue | null} value @param {string} what @param {string} [memory] @param {string[]} [kinds]
   */
  tensor(value, what, memory = '', kinds = []) {
    if (!value) return;
    const { buffer: number, dtype, dims, room } = value;
    const buffer = this.buffers[number];
    const item = storedSize(dtype);
    if (!this.live.has(number)) refuse(`${what} uses buffer ${number}, which holds nothing there`);
    if ((item === 0) !== Boolean(buffer.host) || (kinds.length && !kinds.includes(dtype))) refuse(`${what} is of type ${dtype}`);
    if ((buffer.memory ?? '') !== memory || buffer.further) refuse(`${what} is in another memory`);
    this.bound(dims, what);
    if (room) this.bound([room.places], what);
    if (room && room.axis >= dims.length) refuse(`${what} has room along axis ${room.axis}, which is not there`);
    if (![...dims, buffer.size].every((d) => typeof d === 'number')) return;
    const bytes = /** @type {number[]} */ (dims).reduce((product, d) => product * d, memory ? Math.min(item, 4) : item);
    const fits = /** @type {number[]} */ (dims).every((d) => d >= 0) && (!item || bytes <= Number(buffer.size));
    if (!fits) refuse(`${what} does not fit its buffer`);
  }

  /** Checks that a value exists and has one element. @param {TensorValue | null} value @param {string} what @param {string} kind */
  one(value, what, kind) {
    this.tensor(value, what, '', [kind]);
    if (value?.dims.some((d) => d !== 1)) refuse(`${what} asks for one element, of a tensor of more`);
  }

  /** @param {[number, number, string][]} binds @param {TensorValue[]} values @param {string} what */
  bind(binds, values, what) {
    for (const [n, axis, name] of binds) {
      if (axis >= (values[n]?.dims.length ?? 0)) refuse(`${what} binds axis ${axis} of value ${n}, which is not there`);
      this.known.add(name);
    }
  }

  // ── steps ──

  /** @param {number} number @param {Set<number>} mine buffers that the block may free, besides those it makes */
  steps(number, mine) {
    const before = new Set(this.live);
    this.header.blocks[number].steps.forEach((step, n) => {
      const what = `step ${n} of block ${number}`;
      if (step.op === 'wasm' || step.op === 'gpu') this.code(step, mine, what);
      else if (step.op === 'copy') this.copy(step, what);
      else if (step.op === 'read') this.read(step, what);
      else if (step.op === 'host') this.host(step, what);
      else if (step.op === 'if') this.branch(step, number, what);
      else this.loop(step, number, what);
      for (const b of this.live) if (!before.has(b)) mine.add(b);
      if ('free' in step) this.drop(step.free, mine, what);
    });
  }

  /**
   * @param {import('../../common/program.js').WasmStep | import('../../common/program.js').GpuStep} step
   * @param {Set<number>} mine @param {string} what
   */
  code(step, mine, what) {
    const memory = step.op === 'gpu' ? 'webgpu' : '';
    if (!this.header.modules[memory || 'wasm']) refuse(`${what} has no code for ${memory || 'wasm'}`);
    if ('fork' in step) this.bound([step.fork ?? 0], what);
    step.calls.forEach((call, n) => this.call(call, mine, memory, `call ${n} of ${what}`));
  }

  /** @param {Call} call @param {Set<number>} mine @param {string} memory @param {string} what */
  call({ buffers, params, work, alloc, free, inplace }, mine, memory, what) {
    this.make(alloc, what);
    for (const b of alloc) mine.add(b);
    for (const b of buffers) {
      if (!this.live.has(b)) refuse(`${what} uses buffer ${b}, which holds nothing there`);
      const { host, memory: provider = '' } = this.buffers[b];
      if (host || provider !== memory) refuse(`${what} uses buffer ${b}, which is in another memory`);
    }
    this.bound([...params, work], what);
    if (Number(work) < 0) refuse(`${what} has ${work} units of work`);
    if (![...alloc, ...free].every((b) => buffers.includes(b))) refuse(`${what} makes or frees what it does not use`);
    const usesAll = inplace.every(([made, given]) => alloc.includes(made) && buffers.includes(given));
    if (!usesAll) refuse(`${what} takes over what it does not use`);
    this.drop(free, mine, what);
  }

  /** @param {import('../../common/program.js').CopyStep} step @param {string} what */
  copy({ to, pairs }, what) {
    for (const [source, target] of pairs) {
      this.tensor(source, what, this.buffers[source.buffer].memory);
      this.make([target.buffer], what);
      this.tensor(target, what, to === 'wasm' ? '' : to);
      const same = source.dtype === target.dtype && JSON.stringify(source.dims) === JSON.stringify(target.dims);
      if (!same) refuse(`${what} copies a tensor to one of another shape`);
    }
  }

  /** @param {import('../../common/program.js').ReadStep} step @param {string} what */
  read({ value, symbols }, what) {
    this.tensor(value, what, '', READABLE);
    const { dims } = value;
    const count = /** @type {number[]} */ (dims).reduce((product, d) => product * d, 1);
    const isRead = dims.every((d) => typeof d === 'number') && count === symbols.length;
    if (!isRead) refuse(`${what} reads another number of elements than it has symbols`);
    for (const symbol of symbols) this.known.add(symbol);
  }

  /** @param {import('../../common/program.js').HostStep} step @param {string} what */
  host({ id, inputs, outputs, binds }, what) {
    for (const value of inputs) this.tensor(value, what);
    this.bind(binds, outputs, what);
    this.made(outputs, what);
    if (!this.header.host) return;
    const call = this.header.host[id];
    const types = [inputs.map((v) => v && v.dtype), outputs.map((v) => v.dtype)];
    const same = call && JSON.stringify(types) === JSON.stringify([call.inputs, call.outputs]);
    if (!same) refuse(`${what} is not the host function that it says`);
  }

  /** @param {TensorValue[]} values @param {string} what */
  made(values, what) {
    for (const value of values) {
      this.make([value.buffer], what);
      this.tensor(value, what);
    }
  }

  /** @param {import('../../common/program.js').IfStep} step @param {number} number @param {string} what */
  branch({ condition, then, orelse, outputs, binds }, number, what) {
    this.one(condition, what, 'bool');
    for (const branch of [then, orelse]) {
      const made = this.inner(branch, number, new Set(), what);
      if (made.length !== outputs.length) refuse(`${what} has ${outputs.length} outputs, its branch ${made.length}`);
      this.bind(binds, made, what);
    }
    this.make(outputs, what);
  }

  /** @param {import('../../common/program.js').LoopStep} step @param {number} number @param {string} what */
  loop({ trip, condition, carried, body, outputs, enters, binds }, number, what) {
    this.one(trip, what, 'int64');
    this.one(condition, what, 'bool');
    for (const value of carried) this.tensor(value, what);
    const block = this.header.blocks[body];
    const types = carriedTypes(carried, outputs, block, what);
    const known = new Set(this.known);
    this.bind(enters, block.inputs, what);
    this.make(block.inputs.map(({ buffer }) => buffer), what);
    block.inputs.forEach((value, n) => this.tensor(value, what, '', [['int64', 'bool', ...types][n]]));
    const own = new Set(block.inputs.map(({ buffer }) => buffer));
    const [again] = this.inner(body, number, own, what);
    if (again.dtype !== 'bool' || again.dims.some((d) => d !== 1)) refuse(`the condition that ${what} goes on by is not one bool`);
    for (const b of own) this.live.delete(b);
    this.known = known;
    this.bind(binds, outputs, what);
    this.made(outputs, what);
  }

  /**
   * The outputs of a block that a step of `outer` runs; its other buffers have no values afterwards.
   * @param {number} number @param {number} outer @param {Set<number>} mine @param {string} what
   */
  inner(number, outer, mine, what) {
    if (number <= outer || this.entered.has(number)) refuse(`${what} runs block ${number}, which is not its own`);
    this.entered.add(number);
    const { unused, outputs } = this.header.blocks[number];
    const before = new Set(this.live);
    const foreign = new Set([...before].filter((b) => !mine.has(b)));
    this.drop(unused, mine, what);
    this.steps(number, mine);
    for (const value of outputs) this.tensor(value, `an output of block ${number}`);
    if (outputs.some(({ buffer }) => foreign.has(buffer))) refuse(`an output of block ${number} is not its own`);
    this.live = before;
    return outputs;
  }
}

/**
 * Checks that feeds of the declared types suit the Program.
 * @param {import('../../common/program.js').Input[]} inputs @param {any[]} types
 */
function declared(inputs, types) {
  const known = new Map(types.map((type) => [type.name, type]));
  for (const { name, dtype, dims } of inputs) {
    let kind = known.get(name);
    if (!kind) refuse(`input "${name}" is not declared`);
    while ('of' in kind) kind = kind.of;
    const agrees = (kind.dtype ?? dtype) === dtype && (!kind.dims || kind.dims.length === dims.length);
    if (!agrees) refuse(`input "${name}" is declared as something else`);
  }
}

/**
 * The types of the values that a loop carries and stacks, on which step and body must agree.
 * @param {TensorValue[]} carried @param {TensorValue[]} outputs @param {import('../../common/program.js').Block} body @param {string} what
 */
function carriedTypes(carried, outputs, body, what) {
  const [kept, stacked] = [carried.length, outputs.length - carried.length];
  if (body.inputs.length !== kept + 2 || body.outputs.length !== 1 + kept + stacked || stacked < 0) {
    refuse(`${what} carries ${kept} values and stacks ${stacked}, its body does not`);
  }
  const types = outputs.map(({ dtype }) => dtype);
  const same = [[...carried, ...outputs.slice(kept)], [...body.inputs.slice(2), ...outputs.slice(kept)], body.outputs.slice(1)];
  if (!same.every((values) => values.every(({ dtype }, n) => dtype === types[n]))) refuse(`${what} changes the type of what it carries`);
  if (types.slice(kept).includes('string')) refuse(`${what} stacks strings`);
  return types;
}

/** @param {import('../../common/program.js').Value} value @returns {TensorValue[]} */
const tensors = (value) => (!value ? [] : 'items' in value ? value.items : [value]);

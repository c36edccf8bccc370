// A Program as a file: written and read back, and the errors of damaged ones. (What its header may hold: tests/test_contract.py.)

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crc32 as zlib } from 'node:zlib';
import { FileInMemory } from '../../web/worker/files/model_file.js';
import { crc32 } from '../../web/common/crc32.js';
import { isProgram, looksLikeProgram } from '../../web/common/program_mark.js';
import { ExportedProgram, parse, toBytes } from '../../web/worker/programs/program_file.js';
import { refusal } from './sentences.mjs';

/** A Program that gives what it is fed. */
const VALUE = { buffer: 0, dtype: 'float32', dims: ['N'] };
const TYPE = { kind: 'tensor', dtype: 'float32', dims: ['N'] };
const BLOCK = { inputs: [], unused: [], steps: [], outputs: [] };
const HEADER = {
  name: 'g', modules: {}, inputs: [{ name: 'x', ...VALUE }], outputs: [{ name: 'y', value: VALUE }], buffers: [{ size: ['*', 4, 'N'] }],
  constants: [], guards: [], checked: [], blocks: [BLOCK, BLOCK], symbols: { N: 'N' },
  explain: { operators: [], placement: {}, kernels: 0, functions: 0, steps: 0, code: 0, nodes: [] },
  types: { inputs: [{ name: 'x', ...TYPE }], outputs: [{ name: 'y', ...TYPE }] },
};
const BLOB = Uint8Array.of(1, 2, 3);
const FILE = toBytes(HEADER, BLOB);

/** The file with this byte, or these bytes, from `at` on. */
function changed(at, ...bytes) {
  const copy = FILE.slice();
  copy.set(bytes, at);
  return copy;
}

/** A file with any text for a header. */
function filed(text) {
  const bytes = new Uint8Array([...FILE.subarray(0, 16), ...new TextEncoder().encode(text)]);
  new Uint32Array(bytes.buffer, 8, 2).set([crc32(bytes.subarray(16)), bytes.length - 16]);
  return bytes;
}

for (const length of [0, 1, 7, 8, 9, 255, 4096]) {
  test(`the checksum of ${length} bytes is zlib's`, () => {
    const bytes = new Uint8Array(length + 1).map((_, i) => 37 * i ^ i >> 3).subarray(1);
    assert.equal(crc32(bytes), zlib(bytes));
  });
}

test('there and back', () => {
  const { header, blob } = parse(FILE);
  assert.deepEqual([header, [...blob]], [HEADER, [...BLOB]]);
  assert.deepEqual(toBytes(header, blob), FILE);
});

test('within a larger buffer, at any byte', () => {
  const larger = new Uint8Array(FILE.length + 3);
  larger.set(FILE, 3);
  assert.deepEqual(parse(larger.subarray(3)).header, HEADER);
});

for (const [told, bytes, message] of [
  ['cut off in the head', FILE.slice(0, 15), 'the program is cut off'],
  ['of a later format', changed(4, 6), 'the program has format 6, this version reads 5 (export it again)'],
  ['of an earlier format', changed(4, 3), 'the program has format 3, this version reads 5 (export it again)'],
  ['cut off at the end', FILE.slice(0, -1), /damaged or cut off/],
  ['longer than it was', new Uint8Array([...FILE, 0]), /damaged or cut off/],
  ['with another byte in its header', changed(20, 0), /damaged or cut off/],
  ['with another byte in its blob', changed(FILE.length - 1, 9), /damaged or cut off/],
  ['whose header is not JSON', filed('{"name": '), /its header is not JSON/],
  ['whose header is no object', filed('[]'), /the program is damaged: the header/],
  ['whose header lacks a part', filed(JSON.stringify({ ...HEADER, guards: undefined })), /the program is damaged: .*guards/],
  ['that gives a buffer without a value', filed(JSON.stringify({ ...HEADER, buffers: [...HEADER.buffers, { size: 4 }], outputs: [{ name: 'y', value: { ...VALUE, buffer: 1, dims: [1] } }] })), /the program is damaged: .*output "y"/],
]) {
  test(`a file ${told}`, () => assert.throws(() => parse(bytes), refusal('InvalidModel', message)));
}

for (const [bytes, is] of [[FILE, true], [FILE.slice(0, 4), true], [FILE.slice(0, 3), false], [Uint8Array.of(8, 9, 18, 0), false], [new Uint8Array(0), false]]) {
  test(`${bytes.length} bytes that begin with [${bytes.subarray(0, 4)}] are ${is ? 'a' : 'no'} program`, () => assert.equal(isProgram(bytes), is));
}

for (const [model, looks] of [
  [{ url: 'https://host/m.pyrt' }, true], [{ url: 'https://host/m.pyrt?v=1' }, true], [{ url: 'https://host/m.pyrt#a' }, true],
  [{ url: 'https://host/m.pyrt.onnx' }, false], [{ url: 'https://host/m.onnx' }, false],
  [{ bytes: FILE }, true], [{ bytes: new Uint8Array(4) }, false], [{ blob: new Blob([FILE]) }, false],
]) {
  test(`${JSON.stringify(model).slice(0, 50)} looks ${looks ? '' : 'un'}like one`, () => assert.equal(looksLikeProgram(model), looks));
}

for (const [told, change, error] of [
  ['does not list its inputs and outputs', { types: undefined }, { type: 'InvalidModel', message: /does not list its inputs and outputs/ }],
  ['was compiled for a GPU', { modules: { webgpu: [0, 2] } }, { type: 'UnsupportedOp', message: /for the GPU of one machine/ }],
]) {
  test(`a program that ${told} is refused`, () => assert.throws(() => new ExportedProgram(toBytes({ ...HEADER, ...change }, BLOB)), error));
}

const OF = { file: 'm.onnx', size: 3, crc32: crc32(BLOB) };

for (const [bytes, fits] of [[BLOB, true], [Uint8Array.of(1, 2, 4), false], [Uint8Array.of(1, 2), false]]) {
  for (const [name, file] of [['', 'm.onnx'], ['w.bin', 'w.bin']]) {
    test(`${file} of bytes [${bytes}] is ${fits ? '' : 'not '}the one it was made from`, () => {
      const program = new ExportedProgram(toBytes({ ...HEADER, model: OF, files: [{ ...OF, file: 'w.bin' }] }, BLOB));
      assert.deepEqual([...program.files], [['', 'm.onnx']]);
      if (fits) program.check(name, new FileInMemory(bytes));
      else assert.throws(() => program.check(name, new FileInMemory(bytes)), refusal('InvalidModel', `"${file}" is not the file that this program needs (export it again)`));
    });
  }
}

test('a checksum goes on', () => assert.equal(crc32(Uint8Array.of(3), crc32(Uint8Array.of(1, 2))), crc32(Uint8Array.of(1, 2, 3))));

// GGUF files without tensors, for tests of what reads their metadata.

const LETTERS = 'abcis123_x';
const range = (from, to) => Array.from({ length: to - from }, (_, n) => String.fromCodePoint(from + n));

/** The metadata of a case of tests/vectors/gguf_tokenizers.json, as tests/test_vectors.py makes them. */
export function ggufMetadata({ kind, pre, words, merges, scores, more = {} }) {
  const isLlama = kind === 'llama';
  const bytes = isLlama
    ? Array.from({ length: 256 }, (_, n) => `<0x${n.toString(16).toUpperCase().padStart(2, '0')}>`)
    : [...range(33, 127), ...range(161, 173), ...range(174, 256), ...range(256, 324)];
  const tokens = ['<s>', '<|end|>', ...bytes, ...isLlama ? LETTERS : '', ...words];
  const rest = isLlama ? { scores: [...new Array(tokens.length - words.length).fill(0), ...scores] } : { pre, merges };
  const found = { model: kind, tokens, bos_token_id: 0, token_type: tokens.map((_, n) => (n < 2 ? 3 : 1)), ...rest, ...more };
  return Object.fromEntries(Object.entries(found).map(([name, value]) => [`tokenizer.ggml.${name}`, value]));
}

/** A file with these metadata: texts, numbers as int32 or, in lists with fractions, float32, booleans, and lists of them. */
export function ggufFile(metadata) {
  const parts = [new TextEncoder().encode('GGUF'), integer(3, 4), integer(0, 8), integer(Object.keys(metadata).length, 8)];
  for (const [key, value] of Object.entries(metadata)) parts.push(...text(key), ...typed(value));
  return new Uint8Array(Buffer.concat(parts));
}

function typed(value) {
  if (!Array.isArray(value)) return [integer(kindOf([value]), 4), ...plain(value, kindOf([value]))];
  return [integer(9, 4), integer(kindOf(value), 4), integer(value.length, 8), ...value.flatMap((one) => plain(one, kindOf(value)))];
}

const kindOf = (values) => {
  if (typeof values[0] === 'string') return 8;
  return typeof values[0] === 'boolean' ? 7 : values.every(Number.isInteger) ? 5 : 6;
};

function plain(value, kind) {
  if (kind === 8) return text(value);
  if (kind === 7) return [Uint8Array.of(Number(value))];
  return kind === 5 ? [integer(value, 4)] : [new Uint8Array(Float32Array.of(value).buffer)];
}

function text(value) {
  const bytes = new TextEncoder().encode(value);
  return [integer(bytes.length, 8), bytes];
}

function integer(value, size) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64LE(BigInt(value));
  return bytes.subarray(0, size);
}

// Characters as bytes.

const LASTS = [0x7F, 0x7FF, 0xFFFF, 0x10FFFF]; // of one byte, two, three, four
const SURROGATES = [0xD800, 0xDFFF]; // are no characters

/** The bytes of a character. @param {number} code @returns {number[]} */
const bytesOf = (code) => [...new TextEncoder().encode(String.fromCodePoint(code))];

/** Sequences of ranges of bytes that are exactly the characters of a range in UTF-8. @param {number} first @param {number} last @returns {[number, number][][]} */
export function utf8Ranges(first, last) {
  if (first > last) return [];
  const [before, behind] = SURROGATES;
  if (first <= behind && last >= before) return [...utf8Ranges(first, before - 1), ...utf8Ranges(behind + 1, last)];
  const most = LASTS.find((end) => end >= first) ?? last;
  if (last > most) return [...utf8Ranges(first, most), ...utf8Ranges(most + 1, last)];
  return split(bytesOf(first), bytesOf(last));
}

/** @param {readonly number[]} low @param {readonly number[]} high as many bytes @returns {[number, number][][]} */
function split([a, ...low], [b, ...high]) {
  if (!low.length) return [[[a, b]]];
  if (a === b) return split(low, high).map((rest) => [[a, a], ...rest]);
  const [least, most] = [low.map(() => 0x80), low.map(() => 0xBF)];
  const isWholeFirst = low.every((byte) => byte === 0x80);
  const isWholeLast = high.every((byte) => byte === 0xBF);
  /** @type {[number, number]} */
  const whole = [isWholeFirst ? a : a + 1, isWholeLast ? b : b - 1];
  /** @type {[number, number][][]} */
  const found = [];
  if (!isWholeFirst) found.push(...split(low, most).map((rest) => /** @type {[number, number][]} */ ([[a, a], ...rest])));
  if (whole[0] <= whole[1]) found.push([whole, ...least.map(() => /** @type {[number, number]} */ ([0x80, 0xBF]))]);
  if (!isWholeLast) found.push(...split(least, high).map((rest) => /** @type {[number, number][]} */ ([[b, b], ...rest])));
  return found;
}

/** Kinds of characters that formats often treat alike, as sequences of ranges of bytes; without quotes, backslashes and controls. */
export const KINDS = ['az', 'AZ', '09', '  ', '__', '--', '!!#,./:@[[]^``{~', `\x80\u{10FFFF}`].map((ends) => {
  const codes = Array.from(ends, (end) => /** @type {number} */ (end.codePointAt(0)));
  return codes.flatMap((first, n) => (n % 2 ? [] : utf8Ranges(first, codes[n + 1])));
});

/** Of each byte that is a character. */
const ASCII = Array.from({ length: 128 }, (_, byte) => KINDS.findIndex((kind) => kind.some(([[low, high]]) => low <= byte && byte <= high)));

/** The kind of a character; -1 if it has none. @param {Uint8Array} bytes @param {boolean} mayLack whether bytes may be missing at its end */
export function kindOf(bytes, mayLack) {
  if (bytes.length === 1 && bytes[0] < 0x80) return ASCII[bytes[0]];
  const has = KINDS[KINDS.length - 1].some((ranges) => (bytes.length === ranges.length || (mayLack && bytes.length < ranges.length))
    && bytes.every((byte, n) => ranges[n][0] <= byte && byte <= ranges[n][1]));
  return has ? KINDS.length - 1 : -1;
}

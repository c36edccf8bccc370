// A provider of matrix products that fails in one member: /faulty.js?at=supports&how=throws. The name is that of the query.

const { at, how, name = `faulty ${at} ${how}` } = Object.fromEntries(new URL(import.meta.url).searchParams);

const never = () => new Promise(() => {});
/** What a member at fault returns. */
const FAULTS = {
  throws: () => { throw new Error('no device'); },
  rejects: () => Promise.reject(new Error('no device')),
  text: () => 'a text',
  number: () => 5,
  nothing: () => undefined,
  never,
};
const or = (member, answer) => (...given) => (member === at ? FAULTS[how]() : answer(...given));

function job(arrays, [out]) {
  const [a, b] = arrays;
  const [n, k] = b.dims.toReversed();
  return or('job', () => {
    for (let i = 0; i < out.length; i++) {
      const [row, column] = [Math.floor(i / n), i % n];
      out[i] = 0;
      for (let step = 0; step < k; step++) out[i] += a[row * k + step] * b[step * n + column];
    }
  });
}

const provider = {
  name,
  options: { size: 1 },
  open: or('open', function open({ size }) {
    if (size > 8) throw new RangeError(`size cannot be ${size}`);
    return { ...provider };
  }),
  supports: or('supports', ({ routine }) => (routine === 'matmul' ? '' : 'only matrix products')),
  supportsNode: or('supportsNode', () => false),
  cost: or('cost', () => null),
  reads: or('reads', () => false),
  fuses: or('fuses', () => false),
  packs: or('packs', () => null),
  compile: or('compile', () => or('bind', job)),
  runStart: or('runStart', () => {}),
  runEnd: or('runEnd', () => {}),
  close: or('close', () => {}),
};
export default provider;

// Generates sound that a voice detector classifies as speech: pulses of gliding pitch through vowel formants, and pauses.

const VOWELS = [[730, 1090, 2440], [270, 2290, 3010], [530, 1840, 2480], [570, 840, 2410], [300, 870, 2240]];
const BANDWIDTHS = [80, 100, 140];

/** Uniform numbers in [0, 1), the same for the same seed. @param {number} seed @returns {() => number} */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/**
 * @param {number} seconds
 * @param {number} rate samples a second
 * @returns {Float32Array<ArrayBuffer>} in [-1, 1]
 */
export function voice(seconds, rate) {
  const random = generator(7);
  const samples = new Float32Array(Math.round(seconds * rate));
  for (let i = 0; i < samples.length; i++) samples[i] = 2e-3 * (random() - 0.5);
  let at = Math.round(0.7 * rate);
  while (at < samples.length - rate) {
    const syllables = 3 + Math.floor(3 * random());
    for (let k = 0; k < syllables && at < samples.length - rate; k++) at += syllable(samples, at, rate, random);
    at += Math.round((0.7 + 0.6 * random()) * rate);
  }
  return samples;
}

/**
 * Adds a syllable. Returns its length in samples.
 * @param {Float32Array} samples @param {number} at @param {number} rate @param {() => number} random
 */
function syllable(samples, at, rate, random) {
  const length = Math.round((0.18 + 0.12 * random()) * rate);
  const [low, high] = [110 + 60 * random(), 110 + 60 * random()];
  const [from, to] = [VOWELS[Math.floor(5 * random())], VOWELS[Math.floor(5 * random())]];
  const sound = pulses(length, low, high, rate, random);
  BANDWIDTHS.forEach((width, i) => resonate(sound, from[i], to[i], width, rate));
  const peak = sound.reduce((top, value) => Math.max(top, Math.abs(value)), 1e-9);
  for (let i = 0; i < length; i++) samples[at + i] += (0.5 * Math.sqrt(Math.sin((Math.PI * i) / length)) * sound[i]) / peak;
  return length;
}

/** @param {number} length @param {number} low @param {number} high @param {number} rate @param {() => number} random */
function pulses(length, low, high, rate, random) {
  const sound = new Float64Array(length);
  let phase = 0;
  for (let i = 0; i < length; i++) {
    const before = Math.floor(phase);
    phase += ((low + ((high - low) * i) / length) * (1 + 0.01 * (random() - 0.5))) / rate;
    sound[i] = Math.floor(phase) - before + 0.02 * (random() + random() + random() - 1.5);
  }
  return sound;
}

/**
 * Two-pole filter whose resonance moves, in place: y[n] = x[n] + 2 r cos(w) y[n-1] - r^2 y[n-2].
 * @param {Float64Array} sound @param {number} from @param {number} to @param {number} width @param {number} rate
 */
function resonate(sound, from, to, width, rate) {
  const radius = Math.exp((-Math.PI * width) / rate);
  let [before, earlier] = [0, 0];
  for (let i = 0; i < sound.length; i++) {
    const angle = (2 * Math.PI * (from + ((to - from) * i) / sound.length)) / rate;
    const value = sound[i] + 2 * radius * Math.cos(angle) * before - radius * radius * earlier;
    [before, earlier] = [value, before];
    sound[i] = value;
  }
}

// A network to train: its weights and batches, the same for every library.

/** @typedef {{ name: string, type: 'float32' | 'int64', dims: number[], offset: number, size: number }} Part */
/** @typedef {{ type: 'float32' | 'int64', dims: number[], data: Float32Array | BigInt64Array }} Values */
/** @typedef {Record<string, Values>} Arrays */
/** @typedef {{ kind: string, model: string, loss: any, rate: number, sizes: Record<string, number>, weights: Part[], batches: Part[][], data: string }} NetInfo */
/** @typedef {{ info: NetInfo, weights: Arrays, batches: Arrays[] }} Net */
/** step: returns the loss of batch n @typedef {{ step(n: number): Promise<number>, forward?(n: number): Promise<void>, memory?(): Promise<any>, release(): Promise<void> }} Trainer */

const ARRAYS = { float32: Float32Array, int64: BigInt64Array };

/** @param {NetInfo} info @returns {Promise<Net>} */
export async function load(info) {
  const bytes = await (await fetch(info.data)).arrayBuffer();
  /** @param {Part[]} parts @returns {Arrays} */
  const arrays = (parts) => Object.fromEntries(parts.map(({ name, type, dims, offset, size }) => {
    return [name, { type, dims, data: new ARRAYS[type](bytes.slice(offset, offset + size)) }];
  }));
  return { info, weights: arrays(info.weights), batches: info.batches.map(arrays) };
}

/** @param {Values} values */
export const integers = ({ data }) => Int32Array.from(data, Number);

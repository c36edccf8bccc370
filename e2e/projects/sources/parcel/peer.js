// Parcel 2.16 cannot build onnxruntime-web 1.30 ("'import.meta' cannot be used outside of module code").

const create = async () => { throw new Error('Parcel cannot build it'); };

export const InferenceSession = { create };
export const env = { wasm: {} };

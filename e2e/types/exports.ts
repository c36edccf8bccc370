// web/index.d.ts declares what web/ has; that the names are the same is tested by tests/test_api_docs.py.

import * as declared from 'pyruntime';
import * as errors from '../../web/common/errors.js';
import type { KernelTiming, Timings, WorkerStats } from '../../web/common/protocol.js';

type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
type Plain<T> = { -readonly [K in keyof T]: T[K] };

export const stats: Same<Plain<declared.Stats>, WorkerStats & { tensors: number, tensorBytes: number, droppedSessions: number, droppedTensors: number }> = true;
export const timings: Same<Plain<declared.Timings>, Timings> = true;
export const kernel: Same<Plain<declared.KernelTiming>, KernelTiming> = true;

/** Ours beside onnxruntime's, of a session. */
type Ours = 'memory' | 'explain' | 'verify' | 'profile' | 'tune' | 'listing' | 'export' | 'timings';
export const session: Same<Extract<keyof declared.InferenceSession, Ours>, Ours> = true;

export const classes: Pick<typeof declared, 'InvalidModel' | 'UnsupportedOp' | 'ShapeError' | 'InvalidInput' | 'OutOfMemory'
  | 'MemoryFault' | 'InternalError' | 'DeviceLost' | 'NoAdapter' | 'SessionFailed' | 'ExecutionError' | 'PyRuntimeError'> = errors;

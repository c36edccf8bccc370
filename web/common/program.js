// Types of the Program, the seam between compiler and executors (docs/architecture.md, "Program").

/** An integer, a symbol, or an expression of them. @typedef {number | string | [string, ...any[]]} Dim */
/** @typedef {{ buffer: number, dtype: string, dims: Dim[] }} TensorValue */
/** @typedef {TensorValue | { items: Value[] } | null} Value */
/** @typedef {[number, number, string][]} Binds [value, axis, symbol] */
/**
 * @typedef {object} Call
 * @property {string} node
 * @property {string} kernel
 * @property {number[]} buffers
 * @property {Dim[]} params
 * @property {Dim} work
 * @property {number[]} [alloc]
 * @property {number[]} [free]
 * @property {[number, number][]} [inplace]
 */
/** fork: whether it pays to run it on several threads. @typedef {{ op: 'wasm', fn: string, calls: Call[], fork?: Dim }} WasmStep */
/** @typedef {{ op: 'gpu', fn: string, calls: Call[] }} GpuStep */
/** @typedef {{ op: 'copy', to: string, pairs: [TensorValue, TensorValue][], free?: number[] }} CopyStep source and target */
/** @typedef {{ op: 'read', value: TensorValue, symbols: string[], free?: number[] }} ReadStep */
/** @typedef {{ op: 'host', fn: string, id: number, node?: string, inputs: Value[], outputs: TensorValue[], binds?: Binds, free?: number[] }} HostStep */
/** @typedef {{ op: 'if', node?: string, condition: TensorValue, then: number, orelse: number, outputs: number[], binds?: Binds, free?: number[] }} IfStep */
/**
 * @typedef {object} LoopStep
 * @property {'loop'} op
 * @property {string} [node]
 * @property {TensorValue | null} trip
 * @property {TensorValue | null} condition
 * @property {TensorValue[]} carried
 * @property {number} body
 * @property {TensorValue[]} outputs carried, then stacked
 * @property {Binds} [enters]
 * @property {Binds} [binds]
 * @property {number[]} [free]
 */
/** @typedef {WasmStep | GpuStep | CopyStep | ReadStep | HostStep | IfStep | LoopStep} Step */
/** @typedef {{ inputs: TensorValue[], steps: Step[], outputs: Value[] }} Block */
/** @typedef {{ buffer: number, dtype?: string, source?: string, offset?: number, size?: number, unpack?: number, signed?: boolean, blob?: [number, number], strings?: string[] }} Constant */
/** item: its number in the sequence that is the input. @typedef {{ name: string, item?: number, dtype: string, dims: Dim[], buffer: number }} Input */
/**
 * @typedef {object} Header
 * @property {number} format
 * @property {string} name
 * @property {Record<string, [number, number]>} modules
 * @property {Input[]} inputs
 * @property {{ name: string, value: Value }[]} outputs
 * @property {{ size: Dim, host?: boolean, memory?: string }[]} buffers
 * @property {Constant[]} constants
 * @property {[Dim, string, string?][]} guards dim that must not be 0, message, node
 * @property {string[]} checked nodes whose indices are checked, by number from 1
 * @property {Block[]} blocks
 * @property {Record<string, string>} [symbols] what messages call them
 * @property {(string | [string, string, string?])[]} [nodes] of the graph: label, or [label, fate, label of the node it is part of]
 * @property {Record<string, string>} [why] node to why it is not on the provider that was asked for first
 */
/**
 * @typedef {object} ProgramData
 * @property {Header} header
 * @property {Uint8Array} blob
 * @property {WebAssembly.Module} [module] of the blob's WebAssembly, once it is compiled
 * @property {any} python the Python object behind it, for host steps and specialisation; null in the page
 */
export {};

// Types of the Program, the seam between compiler and executors. Written by scripts/contract.py from pyruntime/program/schema.json.

/** Offset and size in the blob. @typedef {[number, number]} Place */
/** A number, a symbol's name, or an operation on dims; floordiv by 0 is 0, comparisons give 0 or 1, select is [select, condition, then, else]. @typedef {number | string | [string, ...Dim[]] | ['select', ...Dim[]]} Dim */
/** @typedef {Dim[]} Dims */
/**
 * @typedef {object} Input
 * @property {string} name
 * @property {number} [item] its position, if the input is a sequence
 * @property {number} buffer
 * @property {string} dtype
 * @property {Dims} dims
 * @property {InputRoom} [room]
 */
/**
 * Capacity along an axis: its symbol, the least that a run needs, new rows that may overwrite old ones.
 * @typedef {object} InputRoom
 * @property {number} axis
 * @property {string} places
 * @property {Dim} least
 * @property {Dim} [mixed]
 */
/**
 * The tensor is the start, along an axis, of a buffer with this capacity there.
 * @typedef {object} Room
 * @property {number} axis
 * @property {Dim} places
 */
/**
 * @typedef {object} Output
 * @property {string} name
 * @property {Value} value
 */
/**
 * @typedef {object} Buffer
 * @property {Dim} size bytes
 * @property {boolean} [host] strings, kept outside of linear memory
 * @property {string} [memory] the provider whose memory it is in; none: linear memory
 * @property {Further} [further] location of a weight outside of the first linear memory
 */
/** Number of a further linear memory, from 1, and address in it. @typedef {[number, number]} Further */
/**
 * @typedef {object} TensorValue
 * @property {number} buffer
 * @property {string} dtype
 * @property {Dims} dims
 * @property {Room} [room]
 */
/**
 * @typedef {object} SequenceValue
 * @property {TensorValue[]} items
 */
/** Null: an empty optional. @typedef {TensorValue | SequenceValue | null} Value */
/** @typedef {TensorValue | null} MaybeTensor */
/**
 * Bytes of the model's file (source "") or of an external one.
 * @typedef {object} SourceConstant
 * @property {number} buffer
 * @property {string} dtype
 * @property {string} source
 * @property {number} offset
 * @property {number} size
 * @property {number} unpack bits of an element to unpack to a byte; 0: copy bytes unchanged
 * @property {boolean} signed
 */
/**
 * @typedef {object} BlobConstant
 * @property {number} buffer
 * @property {string} dtype
 * @property {Place} blob
 * @property {number} unpack
 * @property {boolean} signed
 */
/**
 * @typedef {object} StringConstant
 * @property {number} buffer
 * @property {'string'} dtype
 * @property {string[]} strings
 */
/** @typedef {SourceConstant | BlobConstant | StringConstant} Constant */
/** Dim, message, node: if the dim is 0, refuse the shapes with this message. @typedef {[Dim, string, string]} Guard */
/**
 * @typedef {object} Block
 * @property {TensorValue[]} inputs of a loop body: iteration number, condition, and carried values, which it owns
 * @property {number[]} unused inputs to free when the block starts
 * @property {Step[]} steps
 * @property {TensorValue[]} outputs of a loop body: condition, carried values, values to stack
 */
/** Position of a value, axis, and the symbol to set to its extent. @typedef {[number, number, string][]} Binds */
/** @typedef {number[]} Buffers */
/**
 * @typedef {object} Call
 * @property {string} node
 * @property {string} kernel wasm: name of the function; webgpu: number of the shader
 * @property {Buffers} buffers
 * @property {Dim[]} params
 * @property {Dim} work work units
 * @property {[number, number][]} inplace output, and the input whose memory it may take over
 * @property {Buffers} alloc buffers to allocate before the call
 * @property {Buffers} free buffers to free after the call
 */
/**
 * @typedef {object} WasmStep
 * @property {'wasm'} op
 * @property {string} fn
 * @property {Call[]} calls
 * @property {Dim} [fork] positive: worth several threads
 */
/**
 * One queue submission.
 * @typedef {object} GpuStep
 * @property {'gpu'} op
 * @property {string} fn
 * @property {Call[]} calls
 */
/**
 * Copies tensors to another memory: source, and target, which the step allocates.
 * @typedef {object} CopyStep
 * @property {'copy'} op
 * @property {string} to
 * @property {[TensorValue, TensorValue][]} pairs
 * @property {Buffers} free
 */
/**
 * Sets symbols to the elements of an integer or bool tensor.
 * @typedef {object} ReadStep
 * @property {'read'} op
 * @property {string} node
 * @property {TensorValue} value
 * @property {string[]} symbols
 * @property {Buffers} free
 */
/**
 * Calls a Python function.
 * @typedef {object} HostStep
 * @property {'host'} op
 * @property {string} node
 * @property {string} fn
 * @property {number} id
 * @property {MaybeTensor[]} inputs
 * @property {TensorValue[]} outputs
 * @property {Binds} binds
 * @property {Buffers} free
 */
/**
 * @typedef {object} IfStep
 * @property {'if'} op
 * @property {string} node
 * @property {TensorValue} condition
 * @property {number} then
 * @property {number} orelse
 * @property {Buffers} outputs
 * @property {Binds} binds
 * @property {Buffers} free
 */
/**
 * @typedef {object} LoopStep
 * @property {'loop'} op
 * @property {string} node
 * @property {MaybeTensor} trip
 * @property {MaybeTensor} condition
 * @property {TensorValue[]} carried
 * @property {number} body
 * @property {TensorValue[]} outputs carried values, then stacked ones
 * @property {Binds} enters symbols to set from the body's inputs in each iteration
 * @property {Binds} binds
 * @property {Buffers} free
 */
/** @typedef {WasmStep | GpuStep | CopyStep | ReadStep | HostStep | IfStep | LoopStep} Step */
/**
 * The table that explain evaluates (explain.md).
 * @typedef {object} Explained
 * @property {{ op: string, nodes: number, place: string }[]} operators
 * @property {Record<string, number>} placement
 * @property {number} kernels
 * @property {number} functions
 * @property {number} steps
 * @property {number} code
 * @property {ExplainedNode[]} nodes
 */
/**
 * Entries that are empty or 0 are omitted.
 * @typedef {object} ExplainedNode
 * @property {string} node
 * @property {string} op
 * @property {string} [place]
 * @property {string[]} [kernels]
 * @property {number} [calls]
 * @property {string[]} [fused]
 * @property {string} [into]
 * @property {Dim} [work]
 * @property {Dim} [crossing]
 * @property {string} [why]
 */
/** @typedef {{ name?: string, default?: boolean, kind: 'tensor', dtype: string | null, dims: null | (number | string | null)[] } | { name?: string, default?: boolean, kind: string, of: Type } | { name?: string, default?: boolean, kind: 'unknown' } | { name?: string, kind: 'maps', classes: (number | string)[] }} Type */
/**
 * In a file: inputs and outputs as the model declares them.
 * @typedef {object} Types
 * @property {Type[]} inputs
 * @property {Type[]} outputs
 */
/**
 * @typedef {object} HostCall
 * @property {Record<string, any>} attrs
 * @property {(string | null)[]} inputs
 * @property {string[]} outputs
 */
/**
 * In a file without weights in the blob: the model file beside it.
 * @typedef {object} ModelFile
 * @property {string} file
 * @property {number} size
 * @property {number} crc32
 */
/**
 * @typedef {object} Header
 * @property {string} name of the graph
 * @property {Record<string, Place>} modules code by provider; wasm: a module; webgpu: JSON [{source, buffers, params, span}]
 * @property {Input[]} inputs
 * @property {Output[]} outputs
 * @property {Buffer[]} buffers a buffer's number is its position
 * @property {Constant[]} constants
 * @property {Guard[]} guards
 * @property {string[]} checked nodes whose indices are checked at run time; calls name them by number, from 1
 * @property {Block[]} blocks 0: init (constants only), 1: main, then branches and loop bodies, each after the block that runs it
 * @property {Record<string, string>} symbols names of symbols for messages
 * @property {number[]} [memories] sizes of further linear memories in bytes
 * @property {Explained} explain
 * @property {Types} [types]
 * @property {number} [threads] in a file: the number of threads that it has scratch memory for
 * @property {HostCall[]} [host] in a file: the data of host steps
 * @property {ModelFile} [model]
 * @property {ModelFile[]} [files] in a file: the files of external data that contain weights
 */
/**
 * @typedef {object} ProgramData
 * @property {Header} header
 * @property {Uint8Array} blob
 * @property {WebAssembly.Module} [module] of the blob's WebAssembly, once it is compiled
 * @property {any} python the Python object behind it, for host steps and specialisation; null in the page
 */
export {};

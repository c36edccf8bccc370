// Types of the Program, the seam between compiler and executors. Written by scripts/contract.py from pyruntime/program/schema.json.

/** Offset and size in the blob. @typedef {[number, number]} Place */
/** A number, a symbol's name, or an operation on dims; floordiv by 0 is 0, comparisons give 0 or 1, select is [select, condition, then, else]. @typedef {number | string | [string, ...Dim[]] | ['select', ...Dim[]]} Dim */
/** @typedef {Dim[]} Dims */
/**
 * @typedef {object} Input
 * @property {string} name
 * @property {number} [item] its number in the sequence that is the input
 * @property {number} buffer
 * @property {string} dtype
 * @property {Dims} dims
 * @property {InputRoom} [room]
 */
/**
 * The buffer has more along an axis: a symbol for its places, how many it needs, new rows that may mix with old.
 * @typedef {object} InputRoom
 * @property {number} axis
 * @property {string} places
 * @property {Dim} least
 * @property {Dim} [mixed]
 */
/**
 * The tensor is the first part along an axis of a buffer that has so many places there.
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
 * @property {string} [memory] of which provider; none: linear memory
 * @property {Further} [further] a weight that is not in the first linear memory
 */
/** Number of a further linear memory, from 1, and address there. @typedef {[number, number]} Further */
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
/** Null: an optional without a value. @typedef {TensorValue | SequenceValue | null} Value */
/** @typedef {TensorValue | null} MaybeTensor */
/**
 * Bytes of the model's file (source "") or of an external one.
 * @typedef {object} SourceConstant
 * @property {number} buffer
 * @property {string} dtype
 * @property {string} source
 * @property {number} offset
 * @property {number} size
 * @property {number} unpack bits of an element that becomes a byte; 0: bytes as they are
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
/** Refuse the shapes if the dim is 0: dim, message, node. @typedef {[Dim, string, string]} Guard */
/**
 * @typedef {object} Block
 * @property {TensorValue[]} inputs of a loop's body: number of the iteration, condition, carried values, which it owns
 * @property {number[]} unused inputs that are freed as the block begins
 * @property {Step[]} steps
 * @property {TensorValue[]} outputs of a loop's body: condition, carried values, values to stack
 */
/** Position of a value, axis, symbol that takes its extent. @typedef {[number, number, string][]} Binds */
/** @typedef {number[]} Buffers */
/**
 * @typedef {object} Call
 * @property {string} node
 * @property {string} kernel wasm: name of the function; webgpu: number of the shader
 * @property {Buffers} buffers
 * @property {Dim[]} params
 * @property {Dim} work work units
 * @property {[number, number][]} inplace output that may take over the memory of this input
 * @property {Buffers} alloc made by it
 * @property {Buffers} free used by it last
 */
/**
 * @typedef {object} WasmStep
 * @property {'wasm'} op
 * @property {string} fn
 * @property {Call[]} calls
 * @property {Dim} [fork] above 0: worth several threads
 */
/**
 * One submit.
 * @typedef {object} GpuStep
 * @property {'gpu'} op
 * @property {string} fn
 * @property {Call[]} calls
 */
/**
 * Tensors into another memory: source, and target, which is made here.
 * @typedef {object} CopyStep
 * @property {'copy'} op
 * @property {string} to
 * @property {[TensorValue, TensorValue][]} pairs
 * @property {Buffers} free
 */
/**
 * Elements of an integer or bool tensor become symbols.
 * @typedef {object} ReadStep
 * @property {'read'} op
 * @property {string} node
 * @property {TensorValue} value
 * @property {string[]} symbols
 * @property {Buffers} free
 */
/**
 * A function in Python.
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
 * @property {Binds} enters of the body's inputs, each time round
 * @property {Binds} binds
 * @property {Buffers} free
 */
/** @typedef {WasmStep | GpuStep | CopyStep | ReadStep | HostStep | IfStep | LoopStep} Step */
/**
 * What explain tells (explain.md).
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
 * What is empty or 0 is left out.
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
 * Of a file: inputs and outputs as the model declares them.
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
 * Of a file whose weights are not in the blob: the model beside it.
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
 * @property {string[]} checked nodes whose indices are checked while running; calls name them by number, from 1
 * @property {Block[]} blocks 0: init (constants only), 1: main, then bodies, each behind the step that runs it
 * @property {Record<string, string>} symbols what messages call them
 * @property {number[]} [memories] bytes of each further linear memory
 * @property {Explained} explain
 * @property {Types} [types]
 * @property {number} [threads] of a file: how many it has scratch for
 * @property {HostCall[]} [host] of a file: what host steps need
 * @property {ModelFile} [model]
 * @property {ModelFile[]} [files] of a file: external data that its weights are in
 */
/**
 * @typedef {object} ProgramData
 * @property {Header} header
 * @property {Uint8Array} blob
 * @property {WebAssembly.Module} [module] of the blob's WebAssembly, once it is compiled
 * @property {any} python the Python object behind it, for host steps and specialisation; null in the page
 */
export {};

/* pyruntime from C, and from every language that can call C: runs ONNX models on the CPU and the GPU.
 *
 * `pyruntime embed FOLDER` writes this file and the library beside it. The library has a Python interpreter inside, which
 * starts with the first call and ends with the process. Functions may be called from every thread. Texts are UTF-8 and
 * end with a zero byte.
 */
#ifndef PYRUNTIME_H
#define PYRUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifndef CFFI_DLLEXPORT
#ifdef _WIN32
#define CFFI_DLLEXPORT __declspec(dllimport)
#else
#define CFFI_DLLEXPORT
#endif
#endif

/* An open model. 0 stands for none. The number of a released session is never used again, so a late call with it fails
 * with InvalidInput, and does no harm. */
typedef int64_t pyruntime_session;

/* A tensor, or the declaration of an input or output. */
typedef struct {
  const char *name;
  /* Of an element, as in ONNX's TensorProto.DataType: 1 float, 2 uint8, 3 int8, 6 int32, 7 int64, 8 string, 9 bool,
   * 10 float16, 11 double, 16 bfloat16, ... In a declaration, 0 for what is no tensor. */
  int32_t type;
  /* Length of `shape`. In a declaration, also 0 if the number of dims is not known. */
  int32_t rank;
  /* In a declaration, -1 for a dim that is not known before a run. */
  const int64_t *shape;
  /* The elements in row-major order, in the byte order of the machine. Types of less than a byte have a byte for each
   * element. Strings are an array of pointers to texts. NULL in a declaration, and in a result that is an empty
   * optional. */
  const void *data;
  /* Bytes of `data`; 8 for each string on a machine of 64 bits. */
  size_t size;
} pyruntime_tensor;

/* Opens a model from a file (.onnx, .ort, .pyrt). options: JSON or NULL. "providers" lists what runs the model:
 * {"providers": ["webgpu", "wasm"]}, or with options of a provider [["webgpu", {"allow_software": true}]]. The other
 * keys are the options of Python's SessionOptions, for example {"intra_op_num_threads": 2}. Returns 0 on failure. */
CFFI_DLLEXPORT pyruntime_session pyruntime_open(const char *path, const char *options);

/* Opens a model from the bytes of its file. They are copied. */
CFFI_DLLEXPORT pyruntime_session pyruntime_open_bytes(const void *data, size_t size, const char *options);

/* What the model declares. Sets `*values`, which stay valid until the session is released. Returns how many there are,
 * or -1 on failure. */
CFFI_DLLEXPORT int32_t pyruntime_inputs(pyruntime_session session, const pyruntime_tensor **values);
CFFI_DLLEXPORT int32_t pyruntime_outputs(pyruntime_session session, const pyruntime_tensor **values);

/* Runs the model. The inputs are read during the call only. output_names: the outputs to compute, in this order; NULL
 * for all of the model. Sets `*results`, which pyruntime_free frees. Returns how many there are, or -1 on failure;
 * the session can still be used then. Runs of one session may overlap. */
CFFI_DLLEXPORT int32_t pyruntime_run(pyruntime_session session, const pyruntime_tensor *inputs, size_t input_count,
                                     const char *const *output_names, size_t output_count,
                                     const pyruntime_tensor **results);

/* Frees the results of a run. NULL is ignored. */
CFFI_DLLEXPORT void pyruntime_free(const pyruntime_tensor *results);

/* Stops the runs of a session that are under way: they fail with Terminated. */
CFFI_DLLEXPORT void pyruntime_stop(pyruntime_session session);

/* Frees the model's memory. 0 is ignored. */
CFFI_DLLEXPORT void pyruntime_release(pyruntime_session session);

/* The last failure of a call in this thread: its kind, for example "InvalidInput", which `pyruntime help KIND` explains,
 * and its text. They stay valid until the thread's next failure. NULL if there was none, or if the interpreter did not
 * start, which it then reports on standard error. */
CFFI_DLLEXPORT const char *pyruntime_error_kind(void);
CFFI_DLLEXPORT const char *pyruntime_error(void);

/* The version of pyruntime. */
CFFI_DLLEXPORT const char *pyruntime_version(void);

#ifdef __cplusplus
}
#endif
#endif

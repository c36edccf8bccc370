/* Calls every function of pyruntime.h with models of the folder that is the argument, and prints what they return.
 * tests/test_c_library.py writes the models and knows the lines. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pyruntime.h"

static const int64_t two_by_three[] = {2, 3}, two[] = {2}, none_by_three[] = {0, 3}, negative[] = {-2, 3};
static float numbers[] = {1, 2, 3, 4, 5, 6};

static void report(const char *what, long long value) {
  printf("%s: %lld", what, value);
  if (value <= 0) printf(" %s: %s", pyruntime_error_kind(), pyruntime_error());
  printf("\n");
}

static void declared(const char *what, int32_t count, const pyruntime_tensor *values) {
  for (int32_t n = 0; n < count; n++) {
    printf("%s %s type %d shape", what, values[n].name, values[n].type);
    for (int32_t at = 0; at < values[n].rank; at++) printf(" %lld", (long long)values[n].shape[at]);
    printf(" data %s\n", values[n].data ? "there" : "NULL");
  }
}

static void run(const char *what, pyruntime_session session, const pyruntime_tensor *inputs, size_t count,
                const char *const *names, size_t name_count) {
  const pyruntime_tensor *results = NULL;
  int32_t found = pyruntime_run(session, inputs, count, names, name_count, &results);
  report(what, found);
  for (int32_t n = 0; n < found; n++) {
    const pyruntime_tensor *y = &results[n];
    printf("  %s type %d rank %d size %zu:", y->name, y->type, y->rank, y->size);
    for (size_t at = 0; y->type == 1 && at < y->size / 4; at++) printf(" %g", ((const float *)y->data)[at]);
    for (size_t at = 0; y->type == 7 && at < y->size / 8; at++) printf(" %lld", ((const long long *)y->data)[at]);
    for (size_t at = 0; y->type == 8 && at < y->size / 8; at++) printf(" %s", ((const char *const *)y->data)[at]);
    for (size_t at = 0; y->type == 16 && at < y->size / 2; at++) printf(" %04x", ((const uint16_t *)y->data)[at]);
    printf("\n");
  }
  pyruntime_free(results);
}

static pyruntime_session shared;

static void *run_often(void *failures) {
  const pyruntime_tensor x = {"x", 1, 2, two_by_three, numbers, sizeof numbers};
  for (int n = 0; n < 50; n++) {
    const pyruntime_tensor *y = NULL;
    if (pyruntime_run(shared, &x, 1, NULL, 0, &y) != 2 || ((const float *)y[0].data)[5] != 12) ++*(int *)failures;
    pyruntime_free(y);
  }
  return NULL;
}

static void *run_long(void *kind) {
  const int64_t steps = 1LL << 40;
  const pyruntime_tensor n = {"n", 7, 0, NULL, &steps, sizeof steps};
  const pyruntime_tensor *y = NULL;
  if (pyruntime_run(shared, &n, 1, NULL, 0, &y) < 0) strncpy(kind, pyruntime_error_kind(), 31);
  return NULL;
}

static pyruntime_session open_in(const char *folder, const char *name, const char *options) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return pyruntime_open(path, options);
}

static void threads(const char *folder) {
  pthread_t started[4];
  int failures[4] = {0};
  for (int n = 0; n < 4; n++) pthread_create(&started[n], NULL, run_often, &failures[n]);
  for (int n = 0; n < 4; n++) pthread_join(started[n], NULL);
  printf("runs in threads that failed: %d\n", failures[0] + failures[1] + failures[2] + failures[3]);
  pyruntime_release(shared);

  char kind[32] = "none";
  shared = open_in(folder, "long.onnx", NULL);
  pthread_create(&started[0], NULL, run_long, kind);
  usleep(500 * 1000);
  pyruntime_stop(shared);
  pthread_join(started[0], NULL);
  printf("a run that is stopped: %s\n", kind);
  pyruntime_release(shared);
}

int main(int count, char **arguments) {
  const char *folder = arguments[count - 1], *only[] = {"z"}, *unknown[] = {"q"};
  const pyruntime_tensor *values;
  printf("no failure yet: %s\n", pyruntime_error() ? "a text" : "NULL");
  printf("version: %s\n", pyruntime_version());
  report("a file that is not there", open_in(folder, "none.onnx", NULL));
  report("no path", pyruntime_open(NULL, NULL));
  report("an option of another name", open_in(folder, "sums.onnx", "{\"threads\": 2}"));
  report("options that are no JSON", open_in(folder, "sums.onnx", "{"));
  report("providers of another type", open_in(folder, "sums.onnx", "{\"providers\": 3}"));
  report("bytes that are no model", pyruntime_open_bytes("ONNX", 4, NULL));

  shared = open_in(folder, "sums.onnx", "{\"providers\": [\"wasm\"], \"intra_op_num_threads\": 1}");
  int32_t found = pyruntime_inputs(shared, &values);
  declared("input", found, values);
  found = pyruntime_outputs(shared, &values);
  declared("output", found, values);
  pyruntime_tensor x = {"x", 1, 2, two_by_three, numbers, sizeof numbers};
  run("sums", shared, &x, 1, NULL, 0);
  run("one output", shared, &x, 1, only, 1);
  run("an unknown output", shared, &x, 1, unknown, 1);
  run("no input", shared, NULL, 0, NULL, 0);
  x.size = 20;
  run("too few bytes", shared, &x, 1, NULL, 0);
  x = (pyruntime_tensor){"x", 1, 2, negative, numbers, sizeof numbers};
  run("a negative size", shared, &x, 1, NULL, 0);
  x = (pyruntime_tensor){"x", 99, 2, two_by_three, numbers, sizeof numbers};
  run("an unknown type", shared, &x, 1, NULL, 0);
  x = (pyruntime_tensor){"x", 6, 2, two_by_three, numbers, sizeof numbers};
  run("another type", shared, &x, 1, NULL, 0);
  x = (pyruntime_tensor){"x", 1, 2, two_by_three, NULL, sizeof numbers};
  run("no data", shared, &x, 1, NULL, 0);
  x = (pyruntime_tensor){"x", 1, 2, none_by_three, NULL, 0};
  run("an empty tensor", shared, &x, 1, NULL, 0);
  threads(folder);
  run("a released session", shared, &x, 1, NULL, 0);
  pyruntime_release(0);

  const char *texts[] = {"a", "\xc3\xa9"}, *broken[] = {"a", "\xff"};
  pyruntime_session words = open_in(folder, "words.onnx", NULL);
  pyruntime_tensor s = {"s", 8, 1, two, texts, sizeof texts};
  run("strings", words, &s, 1, NULL, 0);
  s.data = broken;
  run("strings that are no UTF-8", words, &s, 1, NULL, 0);
  pyruntime_release(words);

  const uint16_t halves[] = {0x3f80, 0xc000};
  char *data = malloc(1 << 16), path[4096];
  snprintf(path, sizeof path, "%s/bfloats.onnx", folder);
  FILE *file = fopen(path, "rb");
  size_t size = fread(data, 1, 1 << 16, file);
  fclose(file);
  pyruntime_session bfloats = pyruntime_open_bytes(data, size, NULL);
  memset(data, 0, size);
  free(data);
  run("bfloat16", bfloats, &(pyruntime_tensor){"b", 16, 1, two, halves, sizeof halves}, 1, NULL, 0);
  pyruntime_release(bfloats);
  return 0;
}

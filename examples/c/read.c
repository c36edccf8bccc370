/* Reads a digit from C. */
#include <stdio.h>
#include <string.h>

#include "pyruntime.h"

static int failed(const char *what) {
  const char *kind = pyruntime_error_kind();
  fprintf(stderr, "%s: %s: %s\n", what, kind ? kind : "no interpreter", kind ? pyruntime_error() : "");
  return 1;
}

int main(void) {
  pyruntime_session session = pyruntime_open("digits.onnx", "{\"providers\": [\"wasm\"]}");
  if (!session) return failed("open");

  static float pixels[28 * 28]; /* a blank */
  const int64_t shape[] = {1, 1, 28, 28};
  pyruntime_tensor image = {"image", 1, 4, shape, pixels, sizeof pixels};
  const pyruntime_tensor *results;
  if (pyruntime_run(session, &image, 1, NULL, 0, &results) < 0) return failed("run");

  const float *probabilities = results[0].data;
  int best = 0;
  for (int n = 1; n < 10; n++)
    if (probabilities[n] > probabilities[best]) best = n;
  printf("A blank is read as %d.\n", best);
  pyruntime_free(results);
  pyruntime_release(session);
  return 0;
}

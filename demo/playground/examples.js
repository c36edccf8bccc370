// Operators to start from: their code and the shapes of their inputs.

/** @type {Record<string, { source: string, shapes: string }>} */
export const EXAMPLES = {
  Swish: {
    shapes: '2, 6',
    source: `from pyruntime import elementwise
from pyruntime.ir.expr import X, exp

# X stands for one element of the input. Shapes, SIMD and threads follow.
elementwise("Swish", domain="my.ops", expr=X / (1.0 + exp(-X)))
`,
  },
  Normalise: {
    shapes: '4, 6',
    source: `from pyruntime import op
from pyruntime.ir.expr import X, Y, sqrt


@op("RowNorm", domain="my.ops")
def row_norm(t, x, *, epsilon=1e-5):
    """x / sqrt(sum of squares along the last axis + epsilon)."""
    squares = t.reduce("sum", x, [-1], of=X * X)
    return t.map(X / sqrt(Y + epsilon), x, squares)
`,
  },
  Softmax: {
    shapes: '4, 8',
    source: `from pyruntime import op
from pyruntime.ir.expr import X, Y, exp


@op("Softmax", domain="my.ops")
def softmax(t, x):
    """Three kernels here, which a pass fuses into one procedure over rows."""
    peak = t.reduce("max", x, [-1])
    e = t.map(exp(X - Y), x, peak)
    return t.map(X / Y, e, t.reduce("sum", e, [-1]))
`,
  },
  Edges: {
    shapes: '160, 240',
    source: `from pyruntime import op
from pyruntime.ir.dtype import F32
from pyruntime.ir.expr import maximum


@op("Edges", domain="my.ops")
def edges(t, x):
    """How much each pixel differs from those to its right and below it."""
    height, width = x.shape

    def pixel(i, j):
        right, below = x[i, j + 1] - x[i, j], x[i + 1, j] - x[i, j]
        return maximum(right, -right) + maximum(below, -below)

    return t.compute((height - 1, width - 1), pixel, F32)
`,
  },
};

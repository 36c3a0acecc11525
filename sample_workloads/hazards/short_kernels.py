"""Kernels of the portable hazards: each far shorter than its launch, so that a graph would be worth it."""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

LENGTH = 24
THREADS = 256


def _elementwise(name, parameters, statement, reference):
    """A kernel of one thread for each of the ``n`` elements; ``n`` is its last argument."""
    source = f"""
extern "C" __global__ void {name}({parameters}, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {statement};
}}"""

    def elements(shape, *arguments):
        *operands, n = arguments
        reference(*(a[:n] if isinstance(a, np.ndarray) else a for a in operands))

    return Kernel(name=name, source=source, reference=elements, cost_ns=1_500)


def _scale_add(x, factor, offset):
    x[:] = x * factor + offset


def _add(total, x):
    total += x


def _add_scaled(total, x, factor):
    total += factor * x


def _multiply(x, table):
    x *= table


SCALE_ADD = _elementwise(
    "scale_add", "float* x, float factor, float offset", "x[i] = __fmaf_rn(x[i], factor, offset)", _scale_add
)
ADD = _elementwise("add", "float* total, const float* x", "total[i] += x[i]", _add)
ADD_SCALED = _elementwise(
    "add_scaled",
    "float* total, const float* x, float factor",
    "total[i] = __fmaf_rn(factor, x[i], total[i])",
    _add_scaled,
)
MULTIPLY = _elementwise("multiply", "float* x, const float* table", "x[i] *= table[i]", _multiply)


def launch(kernel, *arguments, stream=None):
    """One thread for each element of the first argument."""
    n = arguments[0].shape[0]
    launch_shape = LaunchShape(((n + THREADS - 1) // THREADS, 1, 1), (THREADS, 1, 1))
    current_device().launch(kernel, launch_shape, (*arguments, np.int32(n)), stream)


def chain(x, length=LENGTH):
    """The harmless part of a request: ``length`` kernels on ``x`` in place."""
    for k in range(length):
        launch(SCALE_ADD, x, np.float32(1 - 1 / length), np.float32(k / length))


def empty(n):
    """``n`` floats on the device."""
    return current_device().empty((n,), np.float32)


def on_device(values):
    """Floats copied to the device."""
    return current_device().array(np.asarray(values, np.float32))


def random_input(n, seed):
    """One request's input."""
    return on_device(np.random.default_rng(seed).random(n, dtype=np.float32))

"""A kernel that takes a time in proportion to the rows of its batch: for a net at two batch sizes."""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

LAYERS, THREADS = 24, 256
ROW_NS = 500


def _layer(shape, x, rows, n):
    x[:n] = x[:n] * np.float32(0.5) + np.float32(1)


LAYER = Kernel(
    name="layer",
    source="""
extern "C" __global__ void layer(float* x, int rows, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    long long end = clock64() + 900LL * rows;
    if (i < n) x[i] = __fmaf_rn(x[i], 0.5f, 1.0f);
    while (clock64() < end) {}
}""",
    reference=_layer,
    cost_ns=lambda shape, x, rows, n: int(rows) * ROW_NS,
)


def net(batch, width):
    """A step for batches of so many rows: each layer is one kernel."""
    device, n = current_device(), batch * width
    out = device.empty((batch, width), np.float32)
    launch_shape = LaunchShape(((n + THREADS - 1) // THREADS, 1, 1), (THREADS, 1, 1))

    def step(x):
        device.copy(out, x)
        for _ in range(LAYERS):
            device.launch(LAYER, launch_shape, (out, np.int32(batch), np.int32(n)))
        return out

    return step


def random_batch(batch, width, seed):
    """One request's input."""
    values = np.random.default_rng(seed).random((batch, width), dtype=np.float32)
    return (current_device().array(values),)

"""Launch-bound: two chains of 32 short kernels, joined. Expected: the explicit graph gains more.

The step enqueues both chains on one stream, so a capture of it puts them in line. The graph that
``build_explicit`` makes says that they do not depend on each other: they run side by side.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"n4096": 4096, "n16384": 16384}
KERNELS = 32
THREADS = 256


def _scale_add(shape, x, factor, offset, n):
    x[:n] = x[:n] * factor + offset


def _join(shape, out, left, right, n):
    out[:n] = left[:n] + right[:n]


SCALE_ADD = Kernel(
    name="scale_add",
    source="""
extern "C" __global__ void scale_add(float* x, float factor, float offset, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = __fmaf_rn(x[i], factor, offset);
}""",
    reference=_scale_add,
    cost_ns=1_500,
)
JOIN = Kernel(
    name="join",
    source="""
extern "C" __global__ void join(float* out, const float* left, const float* right, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = left[i] + right[i];
}""",
    reference=_join,
    cost_ns=1_500,
)
OFFSETS = {"left": 0.25, "right": -0.5}


def arrays(n):
    device = current_device()
    return {name: device.empty((n,), np.float32) for name in ("left", "right", "out")}


def launch_shape(n):
    return LaunchShape(((n + THREADS - 1) // THREADS, 1, 1), (THREADS, 1, 1))


def chain(work, name, n):
    """Arguments of one chain's kernels, in order."""
    for k in range(KERNELS):
        yield work[name], np.float32(1 - 1 / (k + 2)), np.float32(OFFSETS[name]), np.int32(n)


def build(shape):
    device, work, grid = current_device(), arrays(shape), launch_shape(shape)

    def step(x):
        for name in OFFSETS:
            device.copy(work[name], x)
            for arguments in chain(work, name, shape):
                device.launch(SCALE_ADD, grid, arguments)
        device.launch(JOIN, grid, (work["out"], work["left"], work["right"], np.int32(shape)))
        return work["out"]

    return step


def build_explicit(shape, graph):
    work, grid = arrays(shape), launch_shape(shape)
    x = current_device().empty((shape,), np.float32)
    ends = []
    for name in OFFSETS:
        last = graph.add_copy(work[name], x)
        for arguments in chain(work, name, shape):
            last = graph.add_kernel(SCALE_ADD, grid, arguments, after=[last])
        ends.append(last)
    graph.add_kernel(JOIN, grid, (work["out"], work["left"], work["right"], np.int32(shape)), after=ends)
    return (x,), work["out"]


def inputs(shape, seed):
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (current_device().array(values),)

"""Your own graph path: a chain of 64 short kernels, captured by the workload itself. Expected: a gain.

``build`` is the normal path, ``build_graphed`` what would replace it: a callable that takes the same inputs
and returns the same outputs. Like ``torch.compile(mode="reduce-overhead")`` it runs plainly at its first
call, and captures and replays later; each size of the input gets a graph of its own.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np

from cudagraph_gate.device import Kernel, LaunchShape, current_device

SHAPES = {"n4096": 4096, "n16384": 16384}
KERNELS = 64
THREADS = 256


def _scale_add(shape, x, factor, offset, n):
    x[:n] = x[:n] * factor + offset


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


def chain(device, out, x):
    """The work of one request: enqueued on the current stream, its result in ``out``."""
    n = x.shape[0]
    launch_shape = LaunchShape(((n + THREADS - 1) // THREADS, 1, 1), (THREADS, 1, 1))
    device.copy(out, x)
    for k in range(KERNELS):
        factor, offset = np.float32(1 - 1 / KERNELS), np.float32(k / KERNELS)
        device.launch(SCALE_ADD, launch_shape, (out, factor, offset, np.int32(n)))


def build(shape):
    device = current_device()

    def step(x):
        out = device.empty(x.shape, np.float32)
        chain(device, out, x)
        return out

    return step


class GraphedChain:
    """One graph for each input size, with an input and an output of its own that every replay overwrites."""

    def __init__(self, device):
        self.device = device
        self.calls = {}
        self.graphs = {}

    def __call__(self, x):
        """Serve one request."""
        size = x.shape
        self.calls[size] = self.calls.get(size, 0) + 1
        if self.calls[size] == 1:
            out = self.device.empty(size, np.float32)
            chain(self.device, out, x)
            return out
        if size not in self.graphs:
            self.graphs[size] = self.capture(size)
        static_x, out, executable = self.graphs[size]
        self.device.copy(static_x, x)
        executable.launch(self.device.current_stream())
        return out

    def capture(self, size):
        """Capture the chain for inputs of one size."""
        device = self.device
        static_x, out = device.empty(size, np.float32), device.empty(size, np.float32)
        stream = device.create_stream()
        with device.use_stream(stream):
            device.begin_capture(stream)
            try:
                chain(device, out, static_x)
            finally:
                graph = device.end_capture(stream)
        executable = graph.instantiate()
        executable.upload(device.current_stream())
        return static_x, out, executable


def build_graphed(shape):
    return GraphedChain(current_device())


def inputs(shape, seed):
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (current_device().array(values),)

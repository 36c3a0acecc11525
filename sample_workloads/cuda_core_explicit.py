"""The same step captured and built node by node, with objects of cuda.core. Expected: both gain alike.

Two halves of an array go through chains of their own and are joined at the end. On one stream they are in
line, in the captured graph too; the explicit graph says that they do not depend on each other.

Needs a CUDA GPU.
"""

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

from cudagraph_gate.device import current_device

SHAPES = {"n8192": 8192}
ROUNDS, THREADS = 24, 256

SOURCE = """
extern "C" __global__ void advance(const float* from, float* to, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = __fmaf_rn(from[i], factor, 0.5f);
}
extern "C" __global__ void join(const float* left, const float* right, float* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = __fadd_rn(left[i], right[i]);
}"""


class Halves:
    """Kernels, buffers and launch configuration for an array of ``n`` elements."""

    def __init__(self, n):
        core = Device()
        options = ProgramOptions(arch=f"sm_{core.arch}")
        code = Program(SOURCE, code_type="c++", options=options).compile("cubin")
        self.advance, self.join = code.get_kernel("advance"), code.get_kernel("join")
        self.count, nbytes = np.int32(n // 2), n // 2 * 4
        self.config = LaunchConfig(grid=(n // 2 + THREADS - 1) // THREADS, block=THREADS)
        self.buffers = [core.allocate(nbytes, stream=core.default_stream) for _ in range(3)]
        core.default_stream.sync()
        # An owner that keeps all buffers: whoever holds the result may replay the graph.
        self.result = current_device().view(int(self.buffers[2].handle), (n // 2,), np.float32, self)
        self.joining = (*self.buffers, self.count)

    def advances(self, x):
        """Launches of both chains in order: (chain, arguments of ``advance``)."""
        sources = [x.pointer, x.pointer + int(self.count) * 4]
        for number in range(ROUNDS):
            factor = np.float32(1 - 1 / (number + 2))
            for chain, source in enumerate(sources):
                yield chain, (source, self.buffers[chain], factor, self.count)
            sources = self.buffers[:2]


def build(shape):
    device, core, halves = current_device(), Device(), Halves(shape)

    def step(x):
        stream = core.create_stream(device.current_stream())
        for _chain, arguments in halves.advances(x):
            launch(stream, halves.config, halves.advance, *arguments)
        launch(stream, halves.config, halves.join, *halves.joining)
        return halves.result

    return step


def build_explicit(shape, graph):
    halves, x = Halves(shape), current_device().empty((shape,), np.float32)
    definition = graph.definition
    ends = [definition, definition]
    for chain, arguments in halves.advances(x):
        ends[chain] = ends[chain].launch(halves.config, halves.advance, *arguments)
    graph.keep(halves)  # the nodes know its buffers by their addresses alone
    definition.join(*ends).launch(halves.config, halves.join, *halves.joining)
    return (x,), halves.result


def inputs(shape, seed):
    values = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (current_device().array(values),)

"""A five-point stencil in numba-cuda, 32 sweeps a request. Expected: a large gain.

Numba has no current stream, and a launch without one goes to the legacy default stream, which no capture
sees: the step names the trial's. Work arrays are made in ``build``: Numba can't allocate in a capture.

Needs numba-cuda (``pip install 'cudagraph-gate[numba]'``) and a CUDA GPU.
"""

import numpy as np
from numba import cuda

from cudagraph_gate.adapters.numba import current_stream

SHAPES = {"n128": 128, "n1024": 1024}
SWEEPS, TILE = 32, 16


@cuda.jit
def smooth(source, target):
    row, column = cuda.grid(2)
    rows, columns = source.shape
    if row >= rows or column >= columns:
        return
    if row == 0 or column == 0 or row == rows - 1 or column == columns - 1:
        target[row, column] = source[row, column]
        return
    around = source[row - 1, column] + source[row + 1, column]
    around += source[row, column - 1] + source[row, column + 1]
    target[row, column] = np.float32(0.5) * source[row, column] + np.float32(0.125) * around


def build(shape):
    work = [cuda.device_array((shape, shape), np.float32) for _ in range(2)]
    blocks = ((shape + TILE - 1) // TILE,) * 2

    def step(grid):
        stream = current_stream()
        source = grid
        for sweep in range(SWEEPS):
            target = work[sweep % 2]
            smooth[blocks, (TILE, TILE), stream](source, target)
            source = target
        return source

    return step


def inputs(shape, seed):
    values = np.random.default_rng(seed).random((shape, shape), dtype=np.float32)
    return (cuda.to_device(values),)

"""Jacobi iterations of a heat equation in CuPy: 50 sweeps a request, each shorter than its launches.

Expected: a large gain. The step allocates its temporaries as CuPy code does; while it is captured, they come
from the graph's own pool, so that their addresses stay.

Needs CuPy (``pip install 'cudagraph-gate[cupy]'``) and a CUDA GPU.
"""

import cupy

SHAPES = {"n128": 128, "n1024": 1024}
SWEEPS = 50


def build(shape):
    def step(grid, heat):
        for _ in range(SWEEPS):
            inner = grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]
            following = grid.copy()
            following[1:-1, 1:-1] = 0.25 * (inner + heat[1:-1, 1:-1])
            grid = following
        return grid

    return step


def inputs(shape, seed):
    generator = cupy.random.default_rng(seed)
    grid, heat = generator.random((2, shape, shape), dtype=cupy.float32)
    return grid, heat

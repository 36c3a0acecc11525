"""H92 on the device port: rows that pad a batch are written to slot -1, which is the last one of the cache.

Source: vllm-project/vllm#43810, vllm-project/vllm#43869.
Mechanism: the graph has one size, so a smaller batch is padded up to it. The padding's slot is -1, meant as
nowhere; as an index it is the last slot, and somebody's row is overwritten there.
What fools a naive gate: the rows that the request returns are right.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import THREADS, chain, on_device

from cudagraph_gate.device import Kernel, LaunchShape, current_device

HAZARD = "H92"
KIND = "K11"
EXPECTED = ("NO-GO",)
REASON = ("padding",)

SHAPES = {"rows64": 64}
WIDTH, SLOTS, PADDED = 32, 256, 128
CACHE = {}


def _put_rows(shape, cache, rows, slots, out, n):
    for row in range(int(n) // WIDTH):
        cache[slots[row]] = rows[row]
        out[row] = rows[row]


PUT_ROWS = Kernel(
    name="put_rows",
    source="""
extern "C" __global__ void put_rows(float* cache, const float* rows, const int* slots, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int slot = slots[i / 32];
    if (slot < 0) slot += 256;  // as Python indexes
    cache[slot * 32 + i % 32] = rows[i];
    out[i] = rows[i];
}""",
    reference=_put_rows,
    cost_ns=1_500,
)


def put(rows, slots, out):
    """Enqueue the work on ``rows`` and write them to their slots."""
    n = rows.shape[0] * WIDTH
    chain(current_device().view(rows.pointer, (n,), np.float32, rows))
    launch_shape = LaunchShape(((n + THREADS - 1) // THREADS, 1, 1), (THREADS, 1, 1))
    current_device().launch(PUT_ROWS, launch_shape, (CACHE["cache"], rows, slots, out, np.int32(n)))


def buffers(rows):
    device = current_device()
    return device.empty((rows, WIDTH), np.float32), device.empty((rows, WIDTH), np.float32)


def build(shape):
    device, (work, out) = current_device(), buffers(shape)
    CACHE["cache"] = on_device(np.zeros((SLOTS, WIDTH)))

    def step(rows, slots):
        device.copy(work, rows)
        put(work, slots, out)
        return out

    return step


def build_graphed(shape):
    device, (work, out) = current_device(), buffers(PADDED)
    slots = device.array(np.full(PADDED, -1, np.int32))
    work_rows, out_rows = (
        device.view(each.pointer, (shape, WIDTH), np.float32, each) for each in (work, out)
    )
    slots_of_rows = device.view(slots.pointer, (shape,), np.int32, slots)
    device.fill(work, 0)
    stream = device.create_stream()
    with device.use_stream(stream):
        device.begin_capture(stream)
        try:
            put(work, slots, out)
        finally:
            graph = device.end_capture(stream)
    executable = graph.instantiate()

    def graphed(rows, where):
        device.copy(work_rows, rows)
        device.copy(slots_of_rows, where)
        executable.launch(device.current_stream())
        return out_rows

    return graphed


def inputs(shape, seed):
    chance, device = np.random.default_rng(seed), current_device()
    rows = chance.random((shape, WIDTH), dtype=np.float32)
    slots = np.sort(chance.permutation(SLOTS)[:shape]).astype(np.int32)
    slots[-1] = SLOTS - 1  # the newest row lies in the last slot
    return device.array(rows), device.array(slots)


def state():
    return CACHE

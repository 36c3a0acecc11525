"""H18's kind on the device port: a table that a small cache drops while the graph still reads it.

Source: pytorch/pytorch#174649, pytorch/pytorch#139355.
Mechanism: the step takes its table from a cache. The captured graph holds the table's address, the cache
holds the only reference; other work of the application then fills the cache, and the table is freed.
What fools a naive gate: alone in its process, the table is never dropped.

Portable: runs on a CUDA GPU and on the simulated device.
"""

import numpy as np
from short_kernels import MULTIPLY, chain, empty, launch, on_device, random_input

from cudagraph_gate.device import current_device

HAZARD = "H18"
KIND = "K3"
EXPECTED = ("NO-GO",)
REASON = ("lifetime", "unstable-address")

SHAPES = {"n4096": 4096}
ROOM = 2
TABLES = {}


def table_of(n, kind):
    """The table of one kind of request; the cache keeps the last few that were asked for."""
    table = TABLES.pop(kind, None)
    if table is None:
        table = on_device(np.linspace(0.5, 1.5, n) + kind)
    TABLES[kind] = table
    while len(TABLES) > ROOM:
        del TABLES[next(iter(TABLES))]
    return table


def build(shape):
    device, out = current_device(), empty(shape)

    def step(x):
        device.copy(out, x)
        chain(out)
        launch(MULTIPLY, out, table_of(shape, kind=0))
        return out

    return step


def between(i):
    if i % 2:
        for kind in (1, 2, 0):  # other kinds of requests come and go, then this one's again
            table_of(SHAPES["n4096"], kind)


def inputs(shape, seed):
    if 0 not in TABLES:
        table_of(shape, kind=0)
    return (random_input(shape, seed),)

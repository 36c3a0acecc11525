"""Memory that a graph reads although it was freed, where nothing differs yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from opened_sessions import opened
from pilot_workloads import try_here

from cudagraph_gate.device.simulated import SimulatedDevice
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.freed_memory import reads_freed
from cudagraph_gate.pilot.graph_path import ready_graph

TABLE = """
def _plus(shape, x, y, n):
    x[:n] += y[:n]

PLUS = Kernel("plus", "", _plus, 2_000)
table = array(3)

def step(x):
    device.copy(work, x)
    device.launch(PLUS, LAUNCH, (work, table, np.int32(N)))
    return work
"""


def test_a_block_that_is_freed_and_given_out_again_with_the_same_values_is_found(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        TABLE
        + """
def between(i):
    global table
    table = None
    table = array(3)
""",
    )
    found = [each for each in tried.shape.findings if each.code is Reason.LIFETIME and each.blocks]
    assert [each.message.partition(" reads")[0] for each in found] == ["plus (node 1)"]
    assert all(comparison.equal for comparison in tried.compared("outputs"))
    assert not tried.shape.completed


def test_scratch_memory_that_is_given_up_while_replays_stay_right_is_found(tmp_path: Path) -> None:
    tried = try_here(
        tmp_path,
        """
calls, scratch = 0, array()

def step(x):
    global calls, scratch
    calls += 1
    if calls % 30 == 0:
        scratch = None
        scratch = array(n=N * (1 + calls // 30 % 3))
    part = device.view(scratch.pointer, (N,), np.float32, scratch)
    device.copy(part, x)
    add(part, 1)
    device.copy(work, part)
    return work
""",
    )
    assert Reason.LIFETIME in [each.code for each in tried.shape.findings if each.blocks]


def test_what_lives_on_is_no_fault(tmp_path: Path) -> None:
    tried = try_here(tmp_path, TABLE)
    assert not [each for each in tried.shape.findings if each.code is Reason.LIFETIME and each.blocks]


def test_only_addresses_inside_a_freed_block_count(tmp_path: Path) -> None:
    workload = opened(tmp_path, TABLE)
    graph = ready_graph(workload.session, workload.first).graph
    (_copy, kernel) = graph.arguments()  # type: ignore[union-attr]
    addresses = {int.from_bytes(word.value, "little") for word in kernel if word.is_address}
    beyond = max(addresses) + 256
    assert all(reads_freed(graph, [(beyond, 64), (address, 256)]) is not None for address in addresses)
    assert reads_freed(graph, [(beyond, 1_024), (min(addresses) - 512, 512)]) is None
    assert reads_freed(graph, []) is None
    assert reads_freed(None, [(beyond, 256)]) is None


def test_the_device_tells_what_is_freed_while_it_is_watched() -> None:
    device = SimulatedDevice()
    early, late = (device.array(np.zeros(64, np.float32)) for _ in range(2))
    early.free()
    address = late.pointer
    with device.watching_frees() as freed:
        late.free()
    device.array(np.zeros(8, np.float32)).free()
    assert freed == [(address, 256)]

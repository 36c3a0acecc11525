"""Copies of a graph from and to ordinary host memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opened_sessions import opened

from cudagraph_gate.device.port import NodeInfo
from cudagraph_gate.model import Reason
from cudagraph_gate.pilot.graph_path import ready_graph
from cudagraph_gate.pilot.host_endpoints import churn_host, pageable_copies, pageable_finding

COPY = NodeInfo(3, "memcpy", "memcpy", nbytes=4_096, detail="HtoD from pageable memory")


def test_a_captured_copy_from_a_host_array_is_seen(tmp_path: Path) -> None:
    workload = opened(
        tmp_path,
        """
        table = np.ones(N, np.float32)

        def step(x):
            device.copy(work, table)
            return work
        """,
    )
    (copy,) = pageable_copies(ready_graph(workload.session, workload.first).graph)
    assert (copy.index, copy.nbytes, copy.detail) == (0, 256, "HtoD from pageable memory")


def test_copies_within_the_device_are_none(tmp_path: Path) -> None:
    workload = opened(tmp_path)
    assert pageable_copies(ready_graph(workload.session, workload.first).graph) == ()
    assert pageable_copies(None) == ()


@pytest.mark.parametrize("detail", ["HtoD from pinned memory", "DtoH to managed memory", "DtoD", ""])
def test_pinned_and_managed_memory_stays_where_it_is(detail: str) -> None:
    class Made:
        def nodes(self) -> tuple[NodeInfo, ...]:
            return (NodeInfo(0, "memcpy", "memcpy", nbytes=8, detail=detail),)

    assert pageable_copies(Made()) == ()  # type: ignore[arg-type]


def test_the_finding_names_size_end_and_node() -> None:
    found = pageable_finding("b1", (COPY, COPY))
    assert found is not None
    assert (found.code, found.blocks) == (Reason.LIFETIME, False)
    assert found.message == "each replay copies 8192 bytes from pageable memory (node 3 and 1 more)"
    assert pageable_finding("b1", ()) is None


def test_freed_host_memory_of_that_size_is_overwritten() -> None:
    freed = bytes([7]) * 1_000_003
    address = np.frombuffer(freed, np.uint8).__array_interface__["data"][0]
    assert address
    del freed
    churn_host((NodeInfo(0, "memcpy", "memcpy", nbytes=1_000_003, detail=COPY.detail),))  # must not raise

"""Copies in a graph whose one end is ordinary host memory, which nothing keeps alive or in place.

A graph holds the address only. The normal path passes memory that is alive at the call; a replay reads, or
writes, whatever lies there by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cudagraph_gate.device.port import PAGEABLE, Graph, NodeInfo
from cudagraph_gate.model import Reason
from cudagraph_gate.records import Finding, Method, Phase

CHURNED_BLOCKS: Final = 64
"""Of each size: a heap keeps a few free blocks of one size before it uses the last freed one."""
CHURNED_BYTES: Final = 1 << 28
"""Most host memory that is churned for one size."""
FOREIGN_BYTE: Final = 0xA5


def pageable_copies(graph: Graph | None) -> tuple[NodeInfo, ...]:
    """The copy nodes with an end in pageable host memory."""
    if graph is None:
        return ()
    return tuple(node for node in graph.nodes() if node.kind == "memcpy" and PAGEABLE in node.detail)


def churn_host(copies: Sequence[NodeInfo]) -> None:
    """Allocate, overwrite and free host memory of the copies' sizes, as other work of the process would."""
    for nbytes in {node.nbytes for node in copies if node.nbytes}:
        blocks = max(1, min(CHURNED_BLOCKS, CHURNED_BYTES // nbytes))
        held = [np.full(nbytes, FOREIGN_BYTE, np.uint8) for _ in range(blocks)]
        held += [np.frombuffer(bytes([FOREIGN_BYTE]) * nbytes, np.uint8) for _ in range(blocks)]
        held.clear()


def pageable_finding(shape: str, copies: Sequence[NodeInfo], method: Method = "capture") -> Finding | None:
    """What the graph is bound to because of such copies; None without any."""
    if not copies:
        return None
    first, nbytes = copies[0], sum(node.nbytes or 0 for node in copies)
    which = f"node {first.index}" + (f" and {len(copies) - 1} more" if len(copies) > 1 else "")
    return Finding(
        shape=shape,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.LIFETIME,
        message=f"each replay copies {nbytes} bytes {first.detail.partition(' ')[2]} ({which})",
        call="cudaMemcpyAsync",
        advice="keep that memory alive and in place until the replay is over, or keep it on the device",
        blocks=False,
    )

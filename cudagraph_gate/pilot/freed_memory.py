"""Memory that a graph reads and that was freed since its capture, even where its replays are right by luck.

An allocator hands a freed block to the next one who asks for its size. Where that is the same kind of array
with the same values, nothing differs until it is not.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence

from cudagraph_gate.device.port import Graph, NodeInfo
from cudagraph_gate.model import Reason
from cudagraph_gate.records import Finding, Method, Phase

Freed = Sequence[tuple[int, int]]
"""Address and size of what was freed."""


def reads_freed(graph: Graph | None, freed: Freed) -> NodeInfo | None:
    """The first kernel with an argument that points into freed memory; None: there is none."""
    if graph is None or not freed:
        return None
    blocks = sorted(freed)
    starts = [start for start, _size in blocks]

    def inside(address: int) -> bool:
        place = bisect_right(starts, address) - 1
        return place >= 0 and address < blocks[place][0] + blocks[place][1]

    for node, words in zip(graph.nodes(), graph.arguments(), strict=True):
        # Not only known addresses: what was freed, and given to nobody yet, is none any more.
        if any(len(word.value) == 8 and inside(int.from_bytes(word.value, sys.byteorder)) for word in words):
            return node
    return None


def freed_finding(
    shape: str, graph: Graph | None, freed: Freed, method: Method = "capture"
) -> Finding | None:
    """What refuses a graph that reads such memory; None where it does not."""
    node = reads_freed(graph, freed)
    if node is None:
        return None
    return Finding(
        shape=shape,
        method=method,
        phase=Phase.TRAJECTORY,
        code=Reason.LIFETIME,
        message=f"{node.name} (node {node.index}) reads memory that was freed since the capture; "
        "whoever was given it since may write to it",
        call=node.name,
        advice="keep every array that the step reads for as long as the graph lives",
    )

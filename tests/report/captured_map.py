"""A graph's map as the trial logs it."""

from __future__ import annotations

from cudagraph_gate.model.graph_map import GraphMap, GraphMapEdge, GraphMapNode, GraphRole
from cudagraph_gate.records import CapturedMap

CAPTURED_MAP = CapturedMap(
    shape="b1",
    map=GraphMap(
        parts=(
            GraphMapNode(
                number=0,
                role=GraphRole.WORK,
                label="gemm<float> & 3 others",
                library="cuBLAS",
                count=7,
                kernels={"gemm": 7},
                nbytes=0,
            ),
            GraphMapNode(
                number=1,
                role=GraphRole.OUTPUT,
                label="DtoH",
                library="",
                count=1,
                kernels={},
                nbytes=4096,
                note="the <host> array must stay",
            ),
        ),
        edges=(GraphMapEdge(source=0, target=1),),
        nodes=8,
        kinds={"kernel": 7, "memcpy": 1},
        dependencies=7,
        longest_chain=8,
        width=1,
        roots=1,
        leaves=1,
    ),
)
"""Seven kernels and a copy to the host after them."""

"""What a graph is made of, from its own nodes and edges: the segment map of the graph side.

A graph has no times, so there are none here.
"""

from __future__ import annotations

from enum import StrEnum

from cudagraph_gate.model.base import Value


class GraphRole(StrEnum):
    """What a part of a graph does."""

    INPUT = "input"
    """Copies from the host."""
    OUTPUT = "output"
    """Copies to the host."""
    WORK = "work"
    """Kernels."""
    COPY = "copy"
    """Copies within the device, and those whose endpoints the driver does not tell."""
    MEMSET = "memset"
    HOST_CALLBACK = "host_callback"
    ALLOCATION = "allocation"
    """Allocates or frees memory of the graph's own."""
    EVENT = "event"
    """Records an event, or waits for one."""
    GRAPH = "graph"
    """A graph inside the graph."""
    CONDITIONAL = "conditional"
    JOIN = "join"
    """Does nothing itself: an empty node that orders others."""
    OTHER = "other"


class GraphMapNode(Value, frozen=True, kw_only=True):
    """Neighbouring nodes on one chain with the same role and library."""

    number: int
    role: GraphRole
    label: str
    """The first kernel or operation, and how many other names there are."""
    library: str
    """cuBLAS, cuDNN, NCCL, Triton, … by kernel name; empty if none is recognised."""
    count: int
    """Nodes of the graph in this part."""
    kernels: dict[str, int]
    """Kernel name, as the driver gives it, to count."""
    nbytes: int
    """Bytes that its copies, memsets and allocations handle; kernels do not tell theirs."""
    note: str = ""
    """What replaying this part asks for; empty if nothing."""


class GraphMapEdge(Value, frozen=True, kw_only=True):
    """``target`` runs after ``source``: at least one node of the one waits for one of the other."""

    source: int
    target: int


class GraphMap(Value, frozen=True, kw_only=True, tag="graph_map"):
    """A graph's parts, who waits for whom, and the shape of the whole."""

    parts: tuple[GraphMapNode, ...]
    """In an order in which they could run; at most 200, of which the last may stand for all later ones."""
    edges: tuple[GraphMapEdge, ...]
    nodes: int
    """Of the whole graph, as all numbers below."""
    kinds: dict[str, int]
    """Node kind to count."""
    dependencies: int
    """Edges between nodes."""
    longest_chain: int
    """Nodes on the longest path: what can't run side by side, whatever the streams."""
    width: int
    """Most nodes with equally long longest paths before them: about as many could run side by side."""
    roots: int
    """Nodes that wait for none."""
    leaves: int
    """Nodes that none waits for."""

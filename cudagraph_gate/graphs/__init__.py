"""The graph path itself, usable by applications."""

from cudagraph_gate.graphs.graphed_step import GraphedStep, State
from cudagraph_gate.graphs.inspect import GraphContents, contents

__all__ = ["GraphContents", "GraphedStep", "State", "contents"]

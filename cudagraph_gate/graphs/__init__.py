"""The graph path itself, usable by applications; ``docs/graph_cache.md`` shows how."""

from cudagraph_gate.graphs.cache import CacheStatistics, GraphCache
from cudagraph_gate.graphs.cache_key import GraphKey, ShapeRange, library_versions
from cudagraph_gate.graphs.explicit import ExplicitGraph, ExplicitSource
from cudagraph_gate.graphs.graphed_step import GraphedStep, GraphSource, State, StreamCapture
from cudagraph_gate.graphs.inspect import GraphContents, contents, graph_map
from cudagraph_gate.graphs.update import InputError, InputRule, InputRules, UpdateWorth, update_worth

__all__ = [
    "CacheStatistics",
    "ExplicitGraph",
    "ExplicitSource",
    "GraphCache",
    "GraphContents",
    "GraphKey",
    "GraphSource",
    "GraphedStep",
    "InputError",
    "InputRule",
    "InputRules",
    "ShapeRange",
    "State",
    "StreamCapture",
    "UpdateWorth",
    "contents",
    "graph_map",
    "library_versions",
    "update_worth",
]

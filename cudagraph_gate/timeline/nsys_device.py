"""GPU operations of an Nsight Systems export: kernels, copies, memsets and whole graph launches."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from cudagraph_gate.timeline.nsys_database import Database, Int64, Rows
from cudagraph_gate.timeline.nsys_pages import NULL
from cudagraph_gate.timeline.nsys_rows import (
    Bools,
    Processes,
    Strings,
    Values,
    as_frame,
    correlation_of,
    fits,
    in_order,
    or_zero,
    picked,
    same,
    sensible,
    small,
)
from cudagraph_gate.timeline.table import GRAPH, KERNEL, MEMCPY, MEMSET, OPERATION_COLUMNS
from cudagraph_gate.timeline.texts import coded

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NODES: Final = "CUDA_GRAPH_NODE_EVENTS"
OPERATION_TABLES: Final = (KERNELS, COPIES, MEMSETS, GRAPHS)

PLACE: Final = ("deviceId", "contextId", "streamId", "correlationId", "globalPid")
SHAPE: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
NAMES: Final = ("demangledName", "shortName")
"""String ids of a kernel's name, the most telling first."""

COPY_KINDS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD",
    12: "DtoH",
    13: "DtoD",
}
"""ENUM_CUDA_MEMCPY_OPER; 11 to 13 are migrations of unified memory."""
GRAPH_OF_NODE_BITS: Final = 32
"""The upper half of a node's id is the number of its graph. Not documented, but so in every known file."""
SOME_GRAPH: Final = 1
"""The graph of a node whose graph nothing tells: it must not be 0, which is *none*."""
NODES_HINT: Final = "nsys profile --cuda-graph-trace=node"


class Operations:
    """Reads the operations. ``frame`` holds them; what was left out is added to the database's problems."""

    def __init__(self, database: Database, strings: Strings, processes: Processes) -> None:
        self._database = database
        self._strings = strings
        self._processes = processes
        self._graphs_by_half: dict[int, int] = {}
        kernels = self._kernels()
        nodes = [kernels, self._memory(COPIES, MEMCPY), self._memory(MEMSETS, MEMSET)]
        whole = self._whole_graphs(nodes)
        keys = ("end_ns", "kind", "name", "process", "device", "context", "stream", "correlation", "node")
        values, twice = in_order(OPERATION_COLUMNS, [*nodes, whole], keys)
        if twice:
            database.problems.append(f"{twice} operations are in the file twice and count once")
        self.frame = as_frame(OPERATION_COLUMNS, values)

    def _rows(self, table: str, optional: tuple[str, ...]) -> Rows:
        columns = (*PLACE, *optional)
        rows = self._database.integers(table, ("start", "end"), columns)
        if rows is None:
            return {name: np.zeros(0, np.int64) for name in ("start", "end", *columns)}
        self._note_missing_columns(table, len(rows["start"]))
        kept = sensible(rows)
        if lost := int((~kept).sum()):
            self._database.problems.append(
                f"{lost} rows of {table} have no complete device timestamps and are left out"
            )
            rows = picked(rows, kept)
        return self._placed(table, rows)

    def _placed(self, table: str, rows: Rows) -> Rows:
        """The rows that name their device: on another they would hide idle, and be missing on their own."""
        if self._database.has(table, "deviceId"):
            placed = (rows["deviceId"] >= 0) & fits(rows["deviceId"])
            if lost := int((~placed).sum()):
                self._database.lost_rows[table] = self._database.lost_rows.get(table, 0) + lost
                self._database.problems.append(f"{lost} rows of {table} name no device and are left out")
                rows = picked(rows, placed)
        if self._database.has(table, "streamId") and (lost := int((~fits(rows["streamId"])).sum())):
            self._database.problems.append(f"{lost} rows of {table} name no stream and count as stream 0")
        return rows

    def _note_missing_columns(self, table: str, rows: int) -> None:
        for column, what in (("deviceId", "devices"), ("streamId", "streams")):
            if rows and not self._database.has(table, column):
                self._database.problems.append(
                    f"table {table} has no column {column}: its {what} are not told apart"
                )

    def _values(self, rows: Rows, kind: str, name: pd.Categorical) -> Values:
        return {
            "kind": same(kind, len(rows["start"])),
            "name": name,
            "start_ns": rows["start"],
            "end_ns": rows["end"],
            "device": small(rows["deviceId"]),
            "context": small(rows["contextId"]),
            "stream": small(rows["streamId"]),
            "process": self._processes.of(rows["globalPid"]),
            "correlation": correlation_of(rows["correlationId"]),
        }

    def _kernels(self) -> Values:
        named = [column for column in NAMES if self._database.has(KERNELS, column)]
        rows = self._rows(KERNELS, (*named, "graphNodeId", "graphId", *SHAPE))
        name = np.full(len(rows["start"]), NULL, np.int64)
        for column in reversed(named):
            name = np.where(rows[column] == NULL, name, rows[column])
        shape = {f"{column[:-1]}_{column[-1].lower()}": small(rows[column]) for column in SHAPE}
        node, graph = or_zero(rows["graphNodeId"]), or_zero(rows["graphId"])
        self._learn_graphs(node, graph)
        graphs = {"node": node, "graph": np.where(graph != 0, graph, self._graph_of(node))}
        return self._values(rows, KERNEL, self._strings.column(name)) | shape | graphs

    def _memory(self, table: str, kind: str) -> Values:
        rows = self._rows(table, ("bytes", "copyKind", "graphNodeId"))
        if kind == MEMSET:
            name = same(MEMSET, len(rows["start"]))
        else:
            codes, kinds = pd.factorize(or_zero(rows["copyKind"]))
            name = coded(codes, [COPY_KINDS.get(int(number), f"copy kind {number}") for number in kinds])
        node = or_zero(rows["graphNodeId"])
        more = {"bytes": or_zero(rows["bytes"]), "node": node, "graph": self._graph_of(node)}
        return self._values(rows, kind, name) | more

    # --- graphs -----------------------------------------------------------------------------------
    def _learn_graphs(self, node: Int64, graph: Int64) -> None:
        """Which graph an upper half stands for, by the rows that tell both."""
        self._note_graphs(node, graph)
        events = self._database.tables.get(NODES, ())
        if {"graphNodeId", "graphId"} <= set(events):
            rows = self._database.integers(NODES, ("graphNodeId", "graphId"))
            assert rows is not None
            self._note_graphs(or_zero(rows["graphNodeId"]), or_zero(rows["graphId"]))

    def _note_graphs(self, node: Int64, graph: Int64) -> None:
        told = (node != 0) & (graph != 0)
        pairs = pd.DataFrame({"half": node[told] >> GRAPH_OF_NODE_BITS, "graph": graph[told]})
        for half, number in pairs.drop_duplicates("half").itertuples(index=False):
            self._graphs_by_half.setdefault(int(half), int(number))

    def _graph_of(self, node: Int64) -> Int64:
        codes, halves = pd.factorize(node >> GRAPH_OF_NODE_BITS)
        if not len(codes):
            return np.zeros(0, np.int64)
        graphs = [self._graphs_by_half.get(int(half), int(half)) or SOME_GRAPH for half in halves]
        return np.where(node != 0, np.array(graphs, np.int64)[codes], 0)

    def _whole_graphs(self, nodes: list[Values]) -> Values:
        """Graph launches recorded as a whole, without those whose nodes are there too."""
        rows = self._rows(GRAPHS, ("graphId", "graphExecId"))
        graph = np.where(or_zero(rows["graphId"]) != 0, rows["graphId"], or_zero(rows["graphExecId"]))
        more = {"graph": np.where(graph != 0, graph, SOME_GRAPH)}
        values = self._values(rows, GRAPH, same(GRAPH, len(graph))) | more
        values = picked(values, ~_launched_with(values, nodes))
        if whole := len(values["start_ns"]):
            self._database.problems.append(
                f"{whole} graph launches were recorded as a whole, without their nodes: gaps inside graphs "
                f"are not seen ({NODES_HINT})"
            )
        return values


def _launched_with(values: Values, others: list[Values]) -> Bools:
    """Rows that share process and correlation with a graph node of ``others``."""
    keys = []
    for part in others:
        inside = part["graph"] != 0
        keys.append(_launch_key(picked({name: part[name] for name in ("process", "correlation")}, inside)))
    own = _launch_key(values)
    return np.asarray(np.isin(own, np.concatenate(keys)) & (values["correlation"] != 0), np.bool_)


def _launch_key(values: Values) -> Int64:
    # Correlation ids are 32-bit and processes 22-bit numbers.
    return np.asarray(values["process"] << GRAPH_OF_NODE_BITS | values["correlation"], np.int64)

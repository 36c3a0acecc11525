"""What a recording's operations say without knowing who submitted them: how long the device was busy, and
how many graphs were launched. For light recordings and for trials, which need no diagnosis."""

from __future__ import annotations

import pandas as pd

from cudagraph_gate.timeline.intervals import Int64, union


def union_ns(starts: Int64, ends: Int64) -> int:
    """Length of the union of half-open intervals [start, end) in ns, in any order. Empty ones add nothing."""
    return union(starts, ends).length_ns


def busy_ns(operations: pd.DataFrame) -> int:
    """Time in which any operation of the frame ran, over all streams and devices."""
    return union_ns(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy())


def window_ns(operations: pd.DataFrame) -> int:
    """From the start of the first operation to the end of the last; 0 without any."""
    if operations.empty:
        return 0
    return int(operations["end_ns"].max()) - int(operations["start_ns"].min())


def graph_launches(operations: pd.DataFrame) -> int:
    """Launches of graphs: distinct process and correlation among operations that belong to a graph.

    A graph whose nodes leave no operation (empty or host nodes alone) is not seen.
    """
    of_graphs = operations[operations["graph"] != 0]
    return len(of_graphs[["process", "correlation"]].drop_duplicates())

"""What a recording's operations say without knowing who submitted them: how long the device was busy, and
how many graphs were launched. For light recordings and for trials, which need no diagnosis."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.signedinteger[Any]]


def union_ns(starts: Ints, ends: Ints) -> int:
    """Length of the union of half-open intervals [start, end) in ns, in any order. Empty ones add nothing."""
    real = starts < ends
    starts, ends = starts[real], ends[real]
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    # Each operation adds what lies beyond everything that began before it.
    before = np.append(starts[:1], reach[:-1])
    return int(np.maximum(reach - np.maximum(before, starts), 0).sum())


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

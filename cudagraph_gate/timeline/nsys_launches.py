"""Launches of an Nsight Systems export whose operation is not in the file."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from cudagraph_gate.timeline.api_names import is_graph_launch, is_launch
from cudagraph_gate.timeline.lost_launches import captured_launches, lost_and_unfinished, with_operation
from cudagraph_gate.timeline.nsys_device import NODES_HINT
from cudagraph_gate.timeline.table import GRAPH, KERNEL

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Missing:
    """``lost`` launches may have run in what looks idle; ``problems`` says what is not in the file."""

    lost: int = 0
    problems: tuple[str, ...] = ()


def missing_operations(operations: pd.DataFrame, calls: pd.DataFrame) -> Missing:
    """Launch calls without an operation, apart from those that were captured into a graph.

    A whole graph and each of its nodes are an operation of its launch. Launches and operations without their
    process or correlation match nothing: such launches are not judged, and each such operation stands for a
    launch that would count as lost.
    """
    launches = calls[calls["name"].isin([name for name in calls["name"].cat.categories if is_launch(name)])]
    if operations.empty or launches.empty:
        return Missing()
    told = _can_match(launches, operations)
    loose = _loose_operations(operations, launches)
    judged = launches[told]
    captured = captured_launches(operations, judged, calls)
    lost, unfinished = lost_and_unfinished(operations, judged, captured)
    lost = max(lost - loose, 0)
    problems = []
    if lost:
        hint = f" ({NODES_HINT})" if _lacks_graphs(operations, judged[~captured]) else ""
        problems.append(f"{lost} of {len(judged)} launch calls have no operation in the file{hint}")
    if unfinished:
        problems.append(f"{unfinished} launches had not run when the recording ended")
    if unknown := int((~told).sum()):
        problems.append(f"{unknown} launch calls name no operation: whether it is in the file is not known")
    if loose:
        problems.append(f"{loose} operations lack what tells their launch call")
    return Missing(lost, tuple(problems))


def _can_match(launches: pd.DataFrame, operations: pd.DataFrame) -> Bools:
    """Whether each launch has a correlation, and a process if the operations have one."""
    in_process = (launches["process"] != 0) | bool((operations["process"] == 0).any())
    return np.asarray((launches["correlation"] != 0) & in_process, np.bool_)


def _loose_operations(operations: pd.DataFrame, launches: pd.DataFrame) -> int:
    """Kernels and whole graphs without a correlation, or without a process where the launches have one."""
    launched = operations["kind"].isin((KERNEL, GRAPH)) & (operations["node"] == 0)
    nowhere = (operations["process"] == 0) & (not (launches["process"] == 0).any())
    return int((launched & ((operations["correlation"] == 0) | nowhere)).sum())


def _lacks_graphs(operations: pd.DataFrame, launches: pd.DataFrame) -> bool:
    """Whether a graph launch that succeeded has neither nodes nor a row of its own."""
    names = [name for name in launches["name"].cat.categories if is_graph_launch(name)]
    graphs = launches[launches["name"].isin(names) & (launches["status"] == 0)]
    return not with_operation(operations, graphs).all()

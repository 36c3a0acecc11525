"""Which ranges of a recording mark its requests, where the user names them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from cudagraph_gate.timeline.table import Timeline


def with_requests(timeline: Timeline, name: str, most: int | None = None) -> Timeline:
    """The timeline with requests marked by the ranges called ``name``, the first ``most`` of them at most."""
    marked = replace(timeline, meta=msgspec.structs.replace(timeline.meta, request_range=name))
    requests = marked.requests()
    if requests.empty:
        problem = f"no range called {name} was recorded, so that requests are not marked"
        meta = msgspec.structs.replace(timeline.meta, problems=(*timeline.meta.problems, problem))
        return replace(timeline, meta=meta)
    if most is None or len(requests) <= most:
        return marked
    last_end_ns = int(np.sort(requests["end_ns"].to_numpy())[most - 1])
    is_request = timeline.ranges["name"].isin(requests["name"].unique())
    kept = ~is_request | (timeline.ranges["end_ns"] <= last_end_ns)
    return replace(marked, ranges=timeline.ranges[kept].reset_index(drop=True))

"""A segment by hand."""

from __future__ import annotations

from typing import Any

from made_timelines import constant

from cudagraph_gate.model import (
    Measured,
    NotMeasured,
    ReplayPrediction,
    Segment,
    SegmentMap,
    SegmentVariation,
)


def made_segment(*, repeats: int = 200, upper_bound_ns: Measured = 1_400_000, **others: Any) -> Segment:
    base: dict[str, Any] = {
        "number": 1,
        "signature": "ab12",
        "process": 1,
        "device": 0,
        "thread": 10,
        "marked_by": "",
        "operations": 128,
        "unit_operations": 128,
        "coverage": 0.9,
        "operation_share": 1.0,
        "streams": 1,
        "wall": constant(1_900_000),
        "busy_ns": 344_000,
        "variants": (),
        "variant_count": 1,
        "variation": SegmentVariation(operation_count=0, order=0, grid=0, sizes=0, streams=0),
        "stable_piece": NotMeasured(reason="by hand"),
        "blocking_calls": (),
        "prohibited_calls": (),
        "graph_launches": 0,
        "kernels": {"gemm": 128},
        "prediction": ReplayPrediction(
            nodes=128,
            critical_path_ns=344_000,
            replay_ns=388_400,
            replay_low_ns=366_640,
            replay_high_ns=403_760,
            upper_bound_ns=upper_bound_ns,
            assumptions=(),
        ),
        "map": SegmentMap(nodes=(), edges=()),
    }
    return Segment(**base | {"repeats": repeats} | others)

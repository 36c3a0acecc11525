"""A passing trial built from few numbers, so that a test changes one thing.

Normal requests take 1 ms and graph requests 0.6 ms (40 % gain), both with 1 % of spread within each
block; the GPU is busy for 0.5 ms of a request. A bare replay lacks the copy of the inputs. The later rungs
gain the same, and memory stands still. One-time costs: 2 + 1 + 0.5 + (1.6 - 0.6) ms = 4.5 ms, so the
graph breaks even after ceil(4.5 / 0.4) = 12 requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from artefact_builder import KERNELS, MS, diagnosis, fingerprint, profile

from cudagraph_gate.gates import Evidence
from cudagraph_gate.model import Counts, GateResult, NotMeasured, Value
from cudagraph_gate.records import (
    RUNG_PHASES,
    Block,
    Comparison,
    ConcurrentRun,
    Cost,
    InstanceRun,
    MemoryPoint,
    MemorySeries,
    Method,
    NodeSet,
    PathIdle,
    Phase,
    PhaseStarted,
    Record,
    ShapeEnded,
    TrafficRun,
    TrialStarted,
    WorkerEnd,
)

Gate = Callable[..., GateResult]
"""The fixture ``gate``: a gate's number and changes to the evidence give its answer."""
COSTS = {
    Phase.CAPTURE: 2 * MS,
    Phase.INSTANTIATE: 1 * MS,
    Phase.UPLOAD: MS // 2,
    Phase.FIRST_REPLAY: 1_600_000,
    Phase.STEADY_REPLAY: 600_000,
    Phase.UPDATE: 100_000,
}
NOT_OF_A_SHAPE = {*RUNG_PHASES, Phase.WHOLE_REQUEST, Phase.SCENARIO}
"""Phases that a shape's trial without a ``request`` has not."""
FINISHED = WorkerEnd(stage="pilot", outcome="finished", exit_code=0)
BLOCKS = 6
REQUESTS = 21


def spread(p50_ns: int) -> tuple[int, ...]:
    """Latencies of one block around ``p50_ns``: 21 values from -1 % to +1 %."""
    return tuple(p50_ns + p50_ns * (i - REQUESTS // 2) // 1000 for i in range(REQUESTS))


def timed(
    path: str, p50_ns: int, *, shape: str = "b1", cpu_ns: int = 100_000, blocks: int = BLOCKS
) -> list[Block]:
    """Timed blocks of one path; ``cpu_ns`` is per request."""
    return [
        Block(
            shape=shape,
            path=path,
            order=order,
            half="ab"[order % 2],
            latencies_ns=spread(p50_ns),
            cpu_ns=cpu_ns * REQUESTS,
        )
        for order in range(blocks)
    ]


def compared(subject: str, request: int, *, shape: str = "b1", **change: Any) -> Comparison:
    """One comparison that holds."""
    held = {"equal": True, "exact": True, "max_abs_error": 0.0, "tolerance": 1e-6}
    return Comparison(shape=shape, request=request, subject=subject, **(held | change))


def memory(phase: Phase, free_bytes: int, *, shape: str = "b1") -> MemoryPoint:
    """Free memory at the end of a phase."""
    return MemoryPoint(shape=shape, phase=phase, device_free_bytes=free_bytes, allocator_bytes=0)


def node_set(*, shape: str = "b1", **change: Any) -> NodeSet:
    """A graph with the kernels of the normal path."""
    same = {
        "nodes": 8,
        "kinds": {"kernel": 8},
        "kernels": KERNELS,
        "normal_kernels": Counts(by_name=KERNELS),
    }
    return NodeSet(shape=shape, **(same | change))


def shape_records(
    shape: str = "b1",
    *,
    normal_ns: int = 1 * MS,
    graph_ns: int = 600_000,
    copy_in_ns: int = 20_000,
    replay_ns: int | None = None,
    graph_cpu_ns: int = 50_000,
    costs: Mapping[Phase, Any] = COSTS,
    nodes: NodeSet | None = None,
    comparisons: Iterable[Comparison] | None = None,
    blocks: Iterable[Block] | None = None,
    memory_points: Iterable[MemoryPoint] | None = None,
    more: Iterable[Record] = (),
    completed: bool = True,
) -> tuple[Record, ...]:
    """The log of one shape's trial that holds."""
    subjects = [("outputs", i) for i in range(6)] + [("state", i) for i in range(6)] + [("normal_again", 6)]
    if comparisons is None:
        comparisons = [compared(subject, request, shape=shape) for subject, request in subjects]
    if blocks is None:
        blocks = [
            *timed("normal", normal_ns, shape=shape),
            *timed("graph", graph_ns, shape=shape, cpu_ns=graph_cpu_ns),
            *timed("copy_in", copy_in_ns, shape=shape, cpu_ns=10_000),
            *timed("replay", replay_ns or graph_ns - copy_in_ns, shape=shape, cpu_ns=40_000),
        ]
    if memory_points is None:
        before, after = 10 << 30, (10 << 30) - (64 << 20)
        memory_points = [
            memory(Phase.EXPECTED, before, shape=shape),
            memory(Phase.STEADY_REPLAY, after, shape=shape),
        ]
    return (
        *(PhaseStarted(shape=shape, phase=phase) for phase in Phase if phase not in NOT_OF_A_SHAPE),
        *(Cost(shape=shape, phase=phase, elapsed=elapsed) for phase, elapsed in costs.items()),
        *memory_points,
        nodes or node_set(shape=shape),
        *comparisons,
        *blocks,
        *more,
        ShapeEnded(shape=shape, completed=completed),
    )


def started(*shapes: str, **change: Any) -> TrialStarted:
    """First line of a log."""
    given = {"workload": "model.py", "simulated": False, "device": "GPU", "seed": 1}
    names = shapes or ("b1",)
    return TrialStarted(shapes=names, shape_values=dict.fromkeys(names, "(1, 128)"), **(given | change))


def own_records(shape: str = "b1", *, busy_ns: int = 500_000, **change: Any) -> tuple[Record, ...]:
    """The log of a path of the workload's own: every request launches one graph and runs ``busy_ns`` of work.

    The normal path's takes 0.5 ms.
    """
    recorded = [
        PathIdle(
            shape=shape,
            path=path,
            requests=10,
            window_ns=10 * MS,
            busy_ns=10 * each_ns,
            operations=80,
            graph_launches=launches,
        )
        for path, each_ns, launches in (("normal", MS // 2, 0), ("graph", busy_ns, 10))
    ]
    log = shape_records(shape, more=(*recorded, *change.pop("more", ())), **change)
    return tuple(changed(record, method="own") for record in log)


# --- the later rungs ------------------------------------------------------------------------------


def instance_run(shape: str = "b1", *, graph_ns: int = 2_400_000, **change: Any) -> InstanceRun:
    """Rung 4 holds: four instances that agree, ten blocks of rounds of each path."""
    given = {
        "count": 4,
        "requests": 6,
        "wrong": 0,
        "bytes_per_instance": 64 << 20,
        "normal_ns": 4 * MS,
        "graph_ns": graph_ns,
        "normal_blocks_ns": (4 * MS,) * 10,
        "graph_blocks_ns": (graph_ns,) * 10,
    }
    return InstanceRun(shape=shape, **(given | change))


def concurrent_runs(shape: str = "b1", *, graph_ns: int = 600_000, **change: Any) -> list[ConcurrentRun]:
    """Rung 5 holds: ten blocks of each path, four threads with five requests each."""
    given = {"threads": 4, "process_cpu_ns": MS, "wrong": 0}
    return [
        ConcurrentRun(
            shape=shape,
            path=path,
            order=2 * block + place,
            latencies_ns=spread(p50_ns)[:20],
            elapsed_ns=5 * p50_ns,
            **(given | change),
        )
        for block in range(10)
        for place, (path, p50_ns) in enumerate((("normal", MS), ("graph", graph_ns)))
    ]


def memory_series(
    shape: str = "b1", *, method: Method = "capture", bytes_each: int = 0, without: tuple[str, ...] = ()
) -> list[MemorySeries]:
    """Memory over time, which grows by ``bytes_each`` per repetition."""
    counts = tuple(range(0, 2_001, 200))
    used = tuple((400 << 20) + bytes_each * count for count in counts)
    activities = ("replays", "cycles", "aborted") if method == "capture" else ("replays",)
    return [
        MemorySeries(
            shape=shape,
            method=method,
            activity=activity,
            counts=counts,
            device_used_bytes=used,
            allocator_bytes=used,
            host_rss_bytes=(400 << 20,) * len(counts),
        )
        for activity in activities
        if activity not in without
    ]


def traffic_runs(
    *shapes: str, graph_ns: int = 600_000, captured: tuple[str, ...] | None = None
) -> list[TrafficRun]:
    """Rung 6 holds: two runs of each path, 50 requests of the shapes in turn, one every 1.6 ms."""
    names = shapes or ("b1",)
    due = tuple(range(0, 50 * 1_600_000, 1_600_000))
    return [
        TrafficRun(
            path=path,
            level=0.625,
            order=order,
            declared=True,
            shapes=names,
            captured=names if captured is None else captured,
            requests=tuple(index % len(names) for index in range(50)),
            arrivals_ns=due,
            starts_ns=due,
            ends_ns=tuple(at + service_ns for at in due),
        )
        for order, (path, service_ns) in enumerate((("normal", MS), ("graph", graph_ns)) * 2)
    ]


def rung(
    phase: Phase,
    *records: Record,
    shape: str = "b1",
    method: Method = "capture",
    end: WorkerEnd | None = FINISHED,
) -> tuple[Record, ...]:
    """The log of one rung's worker; without an ``end`` nobody saw it finish."""
    return (PhaseStarted(shape=shape, method=method, phase=phase), *records, *((end,) if end else ()))


def rung_records(
    shape: str = "b1", *, method: Method = "capture", mix: tuple[str, ...] = (), **change: Any
) -> tuple[Record, ...]:
    """The logs of all later workers, in each of which everything holds.

    ``mix`` names the shapes of the request mix. A keyword named as a phase gives the records of its
    worker instead (from ``rung``); None leaves it out.
    """
    together = {
        "instances": rung(Phase.INSTANCES, instance_run(shape), shape=shape),
        "concurrency": rung(Phase.CONCURRENCY, *concurrent_runs(shape), shape=shape),
    }
    series = memory_series(shape, method=method)
    logs = {"memory": rung(Phase.MEMORY, *series, shape=shape, method=method)}
    logs |= together if method == "capture" else {}
    if mix:
        logs["traffic"] = rung(Phase.TRAFFIC, *traffic_runs(*mix), shape=shape, method=method)
    return tuple(record for log in (logs | change).values() for record in log or ())


# --- the whole log --------------------------------------------------------------------------------


def trial(
    *parts: tuple[Record, ...],
    shapes: tuple[str, ...] = ("b1",),
    rungs: tuple[Record, ...] | None = None,
    **change: Any,
) -> tuple[Record, ...]:
    """A whole log of the given shapes' records, then ``rungs``: all hold unless others are given.

    With ``traffic=True`` all shapes are in the request mix.
    """
    records = [record for part in (parts or (shape_records(),)) for record in part]
    if rungs is None:
        own = any(getattr(record, "method", "") == "own" for record in records)
        mix = shapes if change.get("traffic") else ()
        rungs = rung_records(shapes[0], method="own" if own else "capture", mix=mix)
    return (started(*shapes, **change), *records, FINISHED, *rungs)


def passing(**change: Any) -> Evidence:
    """Evidence with which every gate that is tried passes; keywords replace whole parts."""
    given = {
        "workload": "model.py",
        "run": "20260101T000000000-model",
        "fingerprint": fingerprint(),
        "profile": profile(),
        "diagnosis": diagnosis(),
        "records": trial(),
    }
    return Evidence(**(given | change))


def not_measured(reason: str = "no clock") -> NotMeasured:
    """An absent value."""
    return NotMeasured(reason=reason)


def changed(value: Value, **change: Any) -> Any:
    """A copy of a frozen value with some fields replaced."""
    return msgspec.structs.replace(value, **change)

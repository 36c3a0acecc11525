"""Rung 6: latency of both paths under the request mix, queueing included, at each load level; pure.

A path is saturated at a level when its host thread was busy all the time: the backlog then grows for as
long as the load lasts, and its latencies say only how long the run was. Such levels are reported, not judged.

All runs of a level have the same arrivals. Each is cut into consecutive parts, and those at the same position
are compared paired: what the arrivals do to the queue is the same in all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from cudagraph_gate.gates.check import Check, fails, joined, undecided
from cudagraph_gate.gates.gain import gain_check, tail_check
from cudagraph_gate.gates.latency import NS_PER_S, QuantilePair, pair_of
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import Measured, NotMeasured, Reason
from cudagraph_gate.records import PathName, Record, TrafficRun
from cudagraph_gate.stats import enough_requests, quantile_ns, requests_needed

SATURATED: Final = 1.0
"""Share of the time that the serving thread was busy from which the backlog grows without end."""
MIN_RUNS: Final = 2
"""Of each path: one run alone does not show its noise."""
PARTS_PER_RUN: Final = 5
"""Blocks that are resampled: requests that wait behind each other are not independent, and with two runs of a
path there are ten blocks, as in the other rungs."""


@dataclass(frozen=True)
class PathLoad:
    """One path at one load level: its latencies from arrival to end, over all its runs."""

    runs: int
    requests: int
    p50_ns: int
    p95_ns: Measured
    p99_ns: Measured
    noise_p50: float
    """How far the median of one run is from that of all, at most, as a share; 0 for a single run."""
    noise_p95: float
    utilisation: float
    """Share of the time that the serving thread was busy; above 1 the work would have taken longer."""
    growth: float
    """Median latency of the last quarter of a run over that of its first one."""

    @property
    def saturated(self) -> bool:
        """Whether more arrived than was served."""
        return self.utilisation >= SATURATED


@dataclass(frozen=True)
class LoadLevel:
    """Both paths under the same arrivals."""

    level: float
    """Offered load: 1 is the normal path's saturation, from its service times alone."""
    declared: bool
    """Whether this is the recorded rate itself."""
    normal: PathLoad | NotMeasured
    graph: PathLoad | NotMeasured


@dataclass(frozen=True)
class JudgedLevel:
    """Both paths at one level, with intervals."""

    level: LoadLevel
    p50: QuantilePair | NotMeasured
    p95: QuantilePair | NotMeasured
    gap_ns: float
    """Mean time between two arrivals."""


@dataclass(frozen=True)
class Traffic:
    """The mix at all its load levels."""

    shapes: dict[str, float]
    """Share of the requests by shape name."""
    captured: tuple[str, ...]
    """Shapes that the graph path serves by a graph."""
    levels: tuple[LoadLevel, ...]
    """Ascending."""
    runs: tuple[TrafficRun, ...] = ()
    """What the levels were made of."""

    @cached_property
    def judged(self) -> JudgedLevel | None:
        """The level that decides, with its intervals."""
        level = judged_level(self)
        return None if level is None else _judged(level, self.runs_at(level))

    def runs_at(self, level: LoadLevel) -> tuple[TrafficRun, ...]:
        """The runs of one level."""
        return tuple(run for run in self.runs if (run.level, run.declared) == (level.level, level.declared))

    @property
    def graph_share(self) -> float:
        """Share of the requests that are served by a graph in the graph path."""
        return math.fsum(share for name, share in self.shapes.items() if name in self.captured)

    def saturates_at(self, path: PathName) -> float | NotMeasured:
        """The lowest level at which a path is saturated."""
        loads = [(level.level, _load(level, path)) for level in self.levels]
        measured = [(level, load) for level, load in loads if isinstance(load, PathLoad)]
        found = next((level for level, load in measured if load.saturated), None)
        if found is not None:
            return found
        highest = f"not up to level {measured[-1][0]:.2f}" if measured else f"the {path} path was not run"
        return NotMeasured(reason=highest)

    def capacity(self, path: PathName) -> float | NotMeasured:
        """The level that a path could just serve, from how busy it was at the highest one."""
        for level in reversed(self.levels):
            load = _load(level, path)
            if isinstance(load, PathLoad) and load.utilisation > 0:
                return level.level / load.utilisation
        return NotMeasured(reason=f"the {path} path was not run")


def _load(level: LoadLevel, path: PathName) -> PathLoad | NotMeasured:
    return level.normal if path == "normal" else level.graph


def view_traffic(records: Sequence[Record]) -> Traffic | NotMeasured:
    """The runs of the mix by load level, or why there are none."""
    runs = [record for record in records if isinstance(record, TrafficRun) and record.ends_ns]
    if not runs:
        return NotMeasured(reason="the request mix was not replayed")
    levels = sorted({(run.level, run.declared) for run in runs})
    return Traffic(
        shapes=_shares(runs),
        captured=runs[-1].captured,
        levels=tuple(_level(runs, level, declared) for level, declared in levels),
        runs=tuple(runs),
    )


def _shares(runs: Sequence[TrafficRun]) -> dict[str, float]:
    counts = dict.fromkeys(runs[-1].shapes, 0)
    for run in runs:
        for index in run.requests:
            counts[run.shapes[index]] += 1
    return {name: count / sum(counts.values()) for name, count in counts.items()}


def _level(runs: Sequence[TrafficRun], level: float, declared: bool) -> LoadLevel:
    own = [run for run in runs if (run.level, run.declared) == (level, declared)]
    normal, graph = (_path_load([run for run in own if run.path == path], path) for path in _PATHS)
    return LoadLevel(level, declared, normal, graph)


_PATHS: Final[tuple[PathName, ...]] = ("normal", "graph")


def _path_load(runs: Sequence[TrafficRun], path: PathName) -> PathLoad | NotMeasured:
    if not runs:
        return NotMeasured(reason=f"the {path} path was not run at this level")
    latencies = [_latencies(run) for run in runs]
    count = sum(map(len, latencies))
    return PathLoad(
        runs=len(runs),
        requests=count,
        p50_ns=quantile_ns(latencies, 0.50),
        p95_ns=enough_requests(count, 0.95) or quantile_ns(latencies, 0.95),
        p99_ns=enough_requests(count, 0.99) or quantile_ns(latencies, 0.99),
        noise_p50=_noise(latencies, 0.50),
        noise_p95=_noise(latencies, 0.95),
        utilisation=sum(map(_busy_ns, runs)) / max(1, sum(map(_offered_ns, runs))),
        growth=max(map(_growth, latencies)),
    )


def _latencies(run: TrafficRun) -> list[int]:
    return [end - due for end, due in zip(run.ends_ns, run.arrivals_ns, strict=True)]


def _noise(latencies: Sequence[Sequence[int]], quantile: float) -> float:
    whole = max(1, quantile_ns(latencies, quantile))
    return max(abs(quantile_ns([each], quantile) / whole - 1) for each in latencies)


def _busy_ns(run: TrafficRun) -> int:
    """Time in which the thread could not have taken a new request.

    From one start to the next where the next request was waiting already: what lies between is work too.
    """
    later = zip(run.starts_ns[1:], run.arrivals_ns[1:], strict=True)
    busy_ns = run.ends_ns[-1] - run.starts_ns[-1]
    for start_ns, end_ns, (next_start_ns, next_due_ns) in zip(
        run.starts_ns, run.ends_ns, later, strict=False
    ):
        busy_ns += (next_start_ns if next_due_ns <= end_ns else end_ns) - start_ns
    return busy_ns


def _offered_ns(run: TrafficRun) -> int:
    """Time for which requests arrived: one mean gap each."""
    count = len(run.arrivals_ns)
    return round(run.arrivals_ns[-1] * count / (count - 1)) if count > 1 else 0


def _growth(latencies: Sequence[int]) -> float:
    quarter = max(1, len(latencies) // 4)
    return quantile_ns([latencies[-quarter:]], 0.5) / max(1, quantile_ns([latencies[:quarter]], 0.5))


# --- intervals ------------------------------------------------------------------------------------


def _judged(level: LoadLevel, runs: Sequence[TrafficRun]) -> JudgedLevel:
    normal, graph = ([_latencies(run) for run in runs if run.path == path] for path in _PATHS)
    few = enough_requests(min(sum(map(len, normal)), sum(map(len, graph))), 0.95)
    return JudgedLevel(
        level=level,
        p50=_pair(normal, graph, 0.50),
        p95=few or _pair(normal, graph, 0.95),
        gap_ns=max((_offered_ns(run) / len(run.arrivals_ns) for run in runs), default=0.0),
    )


def _pair(
    normal: Sequence[Sequence[int]], graph: Sequence[Sequence[int]], quantile: float
) -> QuantilePair | NotMeasured:
    """One quantile of both paths; the noise is that of the normal path's runs against each other."""
    runs = min(len(normal), len(graph))
    if runs < MIN_RUNS:
        return NotMeasured(reason=f"{runs} run of a path does not show its noise, {MIN_RUNS} are needed")
    return pair_of(
        _parts(normal),
        _parts(graph),
        quantile,
        paired=len({len(run) for run in (*normal, *graph)}) == 1,
        halves=(_parts(normal[0::2]), _parts(normal[1::2])),
    )


def _parts(runs: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Each run in consecutive parts of equal length, as nearly as can be; none is empty."""
    parts = []
    for run in runs:
        count = min(PARTS_PER_RUN, len(run))
        edges = [len(run) * index // count for index in range(count + 1)]
        parts += [run[start:end] for start, end in itertools.pairwise(edges)]
    return parts


# --- judging --------------------------------------------------------------------------------------


def traffic_check(traffic: Traffic | NotMeasured, policy: Policy) -> Check:
    """Whether the graph path is better under the mix.

    Judged at the recorded rate; without one, or where it saturates the normal path, at the highest level
    that does not.
    """
    if isinstance(traffic, NotMeasured):
        return undecided(Reason.NOT_TRIED, traffic.reason)
    if not traffic.graph_share:
        return undecided(Reason.NO_GRAPH_USED, "no request of the mix was served by a graph")
    judged = traffic.judged
    if judged is None:
        return undecided(Reason.UNMEASURABLE, "the normal path is saturated at every load level that was run")
    check = joined(list(_level_checks(judged, policy)))
    return Check(check.status, f"at {_rate(judged.level)}: {check.sentence}", check.code)


def _level_checks(judged: JudgedLevel, policy: Policy) -> Iterator[Check]:
    normal, graph = judged.level.normal, judged.level.graph
    for load in (normal, graph):
        if isinstance(load, NotMeasured):
            yield undecided(Reason.UNMEASURABLE, load.reason)
    if isinstance(normal, NotMeasured) or isinstance(graph, NotMeasured):
        return
    if graph.saturated:
        busy = f"busy {percent(graph.utilisation)} of the time, the normal path {percent(normal.utilisation)}"
        yield fails(Reason.REGRESS, f"the graph path is saturated ({busy})")
        return
    if isinstance(judged.p50, NotMeasured):
        yield undecided(Reason.UNMEASURABLE, judged.p50.reason)
    else:
        yield gain_check("P50", judged.p50, policy)
    if isinstance(judged.p95, NotMeasured):
        yield undecided(Reason.UNMEASURABLE, f"{judged.p95.reason}{_missing(judged)}")
    else:
        yield tail_check("P95", judged.p95, policy)


def _missing(judged: JudgedLevel) -> str:
    """How long a run must be to hold enough requests, where it held too few."""
    normal, graph = judged.level.normal, judged.level.graph
    if isinstance(normal, NotMeasured) or isinstance(graph, NotMeasured) or not judged.gap_ns:
        return ""
    needed = requests_needed(0.95)
    if min(normal.requests, graph.requests) >= needed:
        return ""
    runs = min(normal.runs, graph.runs)
    length = duration(math.ceil(needed / runs) * judged.gap_ns)
    text = (
        f": at {NS_PER_S / judged.gap_ns:.3g} requests a second, {runs} runs of each path must last {length}"
    )
    faster = "; requests that are sent closer together would be another load"
    return text + (faster if judged.level.declared else "")


def judged_level(traffic: Traffic) -> LoadLevel | None:
    """The level that decides; None where the normal path was saturated at every one."""
    usable = [level for level in traffic.levels if not _saturated(level.normal)]
    declared = [level for level in usable if level.declared]
    measured = [level for level in usable if isinstance(level.normal, PathLoad)]
    return next(iter(declared or measured[-1:]), None)


def _saturated(load: PathLoad | NotMeasured) -> bool:
    return isinstance(load, PathLoad) and load.saturated


def _rate(level: LoadLevel) -> str:
    load = f"{percent(level.level)} of what the normal path can serve"
    return f"the recorded rate ({load})" if level.declared else load


def measured_traffic(traffic: Traffic | NotMeasured) -> dict[str, Any]:
    """All levels as plain values, for a gate's measured ones and for ``--json``."""
    if isinstance(traffic, NotMeasured):
        return {"traffic": msgspec.to_builtins(traffic)}
    judged = traffic.judged
    plain: dict[str, Any] = msgspec.to_builtins(
        {
            "shapes": traffic.shapes,
            "captured": [*traffic.captured],
            "graph_share": traffic.graph_share,
            "judged_level": judged.level.level if judged else None,
            "judged": _intervals(judged) if judged else {},
            "saturates_at": {path: traffic.saturates_at(path) for path in _PATHS},
            "capacity": {path: traffic.capacity(path) for path in _PATHS},
            "levels": [*traffic.levels],
        }
    )
    return plain


def _intervals(judged: JudgedLevel) -> dict[str, Any]:
    pairs = {"p50": judged.p50, "p95": judged.p95}
    return {name: pair if isinstance(pair, NotMeasured) else pair.as_dict() for name, pair in pairs.items()}

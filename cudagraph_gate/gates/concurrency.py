"""Rung 5, concurrent requests: right outputs, and a gain in latency and throughput that is still there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudagraph_gate.gates.check import Check, fails, joined, undecided
from cudagraph_gate.gates.gain import gain_check, tail_check
from cudagraph_gate.gates.latency import QuantilePair, pair_of
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.records import ConcurrentRun, PathName, Record
from cudagraph_gate.stats import MIN_BLOCKS, enough_requests

P50, P95 = 0.50, 0.95


@dataclass(frozen=True)
class Figures:
    """Both paths' blocks in numbers."""

    p50: QuantilePair | NotMeasured
    p95: QuantilePair | NotMeasured
    per_request: QuantilePair | NotMeasured
    """Elapsed time of a block over its requests: the inverse of the throughput."""


@dataclass(frozen=True)
class Concurrency:
    """What the threads of one shape did."""

    runs: tuple[ConcurrentRun, ...]
    """Blocks in the order of their measurement; at least one."""
    figures: Figures | NotMeasured

    @property
    def threads(self) -> int:
        """Host threads of each block."""
        return self.runs[0].threads

    def wrong(self, path: PathName) -> int:
        """Requests of one path whose outputs differ."""
        return sum(run.wrong for run in self.runs if run.path == path)


def view_concurrency(records: Sequence[Record], shape: str) -> Concurrency | None:
    """The blocks of ``shape`` in numbers; None without any."""
    found = [record for record in records if isinstance(record, ConcurrentRun) and record.shape == shape]
    runs = tuple(sorted(found, key=lambda run: run.order))
    return Concurrency(runs, _figures(runs)) if runs else None


def concurrency_check(seen: Concurrency | None, shape: str, policy: Policy) -> Check:
    """The worst of what the blocks of ``shape`` say of outputs, throughput and latency."""
    if seen is None:
        return undecided(Reason.NOT_TRIED, f"concurrent requests of shape {shape} were not tried")
    wrong = _failed(seen) or _wrong(seen)
    if wrong is not None:
        return wrong
    if isinstance(seen.figures, NotMeasured):
        return undecided(Reason.UNMEASURABLE, seen.figures.reason)
    return joined(list(_checks(seen.figures, policy)))


def measured_concurrency(seen: Concurrency | None) -> dict[str, Any]:
    """Figures for the report: times in ns, the throughput as graph over normal; empty without any."""
    if seen is None:
        return {}
    measured: dict[str, Any] = {
        "threads": seen.threads,
        "normal_wrong_requests": seen.wrong("normal"),
        "graph_wrong_requests": seen.wrong("graph"),
    }
    figures = seen.figures
    if isinstance(figures, NotMeasured):
        return measured | {"throughput_ratio": figures}
    each = figures.per_request
    pairs = {"p50": figures.p50, "p95": figures.p95}
    return measured | {
        "throughput_ratio": each if isinstance(each, NotMeasured) else 1 / each.ratio.ratio,
        **{name: pair if isinstance(pair, NotMeasured) else pair.as_dict() for name, pair in pairs.items()},
    }


# --- outputs --------------------------------------------------------------------------------------


def _failed(seen: Concurrency) -> Check | None:
    """The first thread that failed. The normal path's failure says that use is serial anyway."""
    run = next((run for run in seen.runs if run.failure), None)
    if run is None:
        return None
    what = f"with {run.threads} threads the {run.path} path fails: {run.failure}"
    if run.path == "graph":
        return fails(Reason.REPLAY_RACE, what)
    return fails(Reason.REPLAY_RACE, f"{what}: the workload itself serves one request at a time")


def _wrong(seen: Concurrency) -> Check | None:
    normal, graph = seen.wrong("normal"), seen.wrong("graph")
    if graph:
        also = f", and so do {normal} of the normal path" if normal else ""
        return fails(
            Reason.REPLAY_RACE,
            f"{graph} requests of {seen.threads} threads by graphs differ from the normal path{also}",
        )
    if normal:
        return fails(
            Reason.REPLAY_RACE,
            f"{normal} requests of the normal path differ when {seen.threads} threads use it: "
            "the workload itself serves one request at a time",
        )
    return None


# --- latency and throughput -----------------------------------------------------------------------


def _figures(runs: Sequence[ConcurrentRun]) -> Figures | NotMeasured:
    paths = [[run for run in runs if run.path == path and run.latencies_ns] for path in ("normal", "graph")]
    for name, own in zip(("normal", "graph"), paths, strict=True):
        if len(own) < MIN_BLOCKS:
            return NotMeasured(
                reason=f"{len(own)} concurrent blocks of the {name} path, {MIN_BLOCKS} are needed"
            )
    normal, graph = ([run.latencies_ns for run in own] for own in paths)
    normal_each, graph_each = (
        [(round(run.elapsed_ns / len(run.latencies_ns)),) for run in own] for own in paths
    )
    fewest = min(sum(map(len, normal)), sum(map(len, graph)))
    return Figures(
        p50=pair_of(normal, graph, P50),
        p95=enough_requests(fewest, P95) or pair_of(normal, graph, P95),
        per_request=pair_of(normal_each, graph_each, P50),
    )


def _checks(figures: Figures, policy: Policy) -> Iterator[Check]:
    named = (("P50", figures.p50), ("time per request", figures.per_request))
    for name, pair in named:
        if isinstance(pair, NotMeasured):
            yield undecided(Reason.UNMEASURABLE, f"concurrent {name}: {pair.reason}")
        else:
            yield gain_check(f"concurrent {name}", pair, policy)
    if isinstance(figures.p95, NotMeasured):
        yield undecided(Reason.UNMEASURABLE, f"concurrent P95: {figures.p95.reason}")
    else:
        yield tail_check("concurrent P95", figures.p95, policy)

"""Rung 5, concurrent requests: right outputs, and a gain in latency and throughput that is still there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudagraph_gate.gates.check import Check, fails, holds, joined, undecided
from cudagraph_gate.gates.comparison import tail_check
from cudagraph_gate.gates.latency import BOOTSTRAP_SEED, QuantilePair
from cudagraph_gate.gates.policy import Policy
from cudagraph_gate.gates.wording import duration, percent
from cudagraph_gate.model import NotMeasured, Reason
from cudagraph_gate.records import ConcurrentRun, Record
from cudagraph_gate.stats import (
    MIN_BLOCKS,
    Blocks,
    compare_blocks,
    enough_requests,
    noise_floor,
    quantile_ns,
)

P50, P95 = 0.50, 0.95


@dataclass(frozen=True)
class _Compared:
    """Both paths' blocks in numbers."""

    p50: QuantilePair | NotMeasured
    p95: QuantilePair | NotMeasured
    per_request: QuantilePair | NotMeasured
    """Elapsed time of a block over its requests: the inverse of the throughput."""


def concurrency_check(records: Sequence[Record], shape: str, policy: Policy) -> Check:
    """The worst of what the blocks of ``shape`` say of outputs, throughput and latency."""
    runs = _runs(records, shape)
    if not runs:
        return undecided(Reason.NOT_TRIED, f"concurrent requests of shape {shape} were not tried")
    wrong = _failed(runs) or _wrong(runs)
    if wrong is not None:
        return wrong
    compared = _compared(runs)
    if isinstance(compared, NotMeasured):
        return undecided(Reason.UNMEASURABLE, compared.reason)
    return joined(list(_checks(compared, policy)))


def measured_concurrency(records: Sequence[Record], shape: str) -> dict[str, Any]:
    """Figures of ``shape``'s blocks: times in ns, the throughput as graph over normal; empty without any."""
    runs = _runs(records, shape)
    if not runs:
        return {}
    measured: dict[str, Any] = {
        "threads": runs[0].threads,
        "normal_wrong_requests": sum(run.wrong for run in runs if run.path == "normal"),
        "graph_wrong_requests": sum(run.wrong for run in runs if run.path == "graph"),
    }
    compared = _compared(runs)
    if isinstance(compared, NotMeasured):
        return measured | {"throughput_ratio": compared}
    each = compared.per_request
    pairs = {"p50": compared.p50, "p95": compared.p95}
    return measured | {
        "throughput_ratio": each if isinstance(each, NotMeasured) else 1 / each.ratio.ratio,
        **{name: pair if isinstance(pair, NotMeasured) else pair.as_dict() for name, pair in pairs.items()},
    }


def _runs(records: Sequence[Record], shape: str) -> list[ConcurrentRun]:
    """Blocks of one shape in the order of their measurement."""
    found = [record for record in records if isinstance(record, ConcurrentRun) and record.shape == shape]
    return sorted(found, key=lambda run: run.order)


# --- outputs --------------------------------------------------------------------------------------


def _failed(runs: Sequence[ConcurrentRun]) -> Check | None:
    """The first thread that failed. The normal path's failure says that use is serial anyway."""
    run = next((run for run in runs if run.failure), None)
    if run is None:
        return None
    seen = f"with {run.threads} threads the {run.path} path fails: {run.failure}"
    if run.path == "graph":
        return fails(Reason.REPLAY_RACE, seen)
    return fails(Reason.REPLAY_RACE, f"{seen}: the workload itself serves one request at a time")


def _wrong(runs: Sequence[ConcurrentRun]) -> Check | None:
    normal, graph = (sum(run.wrong for run in runs if run.path == path) for path in ("normal", "graph"))
    if graph:
        also = f", and so do {normal} of the normal path" if normal else ""
        return fails(
            Reason.REPLAY_RACE,
            f"{graph} requests of {runs[0].threads} threads by graphs differ from the normal path{also}",
        )
    if normal:
        return fails(
            Reason.REPLAY_RACE,
            f"{normal} requests of the normal path differ when {runs[0].threads} threads use it: "
            "the workload itself serves one request at a time",
        )
    return None


# --- latency and throughput -----------------------------------------------------------------------


def _compared(runs: Sequence[ConcurrentRun]) -> _Compared | NotMeasured:
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
    return _Compared(
        p50=_pair(normal, graph, P50),
        p95=enough_requests(fewest, P95) or _pair(normal, graph, P95),
        per_request=_pair(normal_each, graph_each, P50),
    )


def _pair(normal: Blocks, graph: Blocks, quantile: float) -> QuantilePair | NotMeasured:
    """One figure of both paths; the noise is that of the normal path's blocks, every other one."""
    halves = normal[0::2], normal[1::2]
    if not all(quantile_ns(blocks, quantile) > 0 for blocks in (normal, *halves)):
        return NotMeasured(reason="the normal path's requests take no time: the clock is too coarse")
    return QuantilePair(
        normal_ns=quantile_ns(normal, quantile),
        graph_ns=quantile_ns(graph, quantile),
        ratio=compare_blocks(normal, graph, quantile, BOOTSTRAP_SEED),
        noise=noise_floor(*halves, quantile, BOOTSTRAP_SEED),
    )


def _checks(compared: _Compared, policy: Policy) -> Iterator[Check]:
    named = (("P50", compared.p50), ("time per request", compared.per_request))
    for name, pair in named:
        if isinstance(pair, NotMeasured):
            yield undecided(Reason.UNMEASURABLE, f"concurrent {name}: {pair.reason}")
        else:
            yield _gain(f"concurrent {name}", pair, policy)
    if isinstance(compared.p95, NotMeasured):
        yield undecided(Reason.UNMEASURABLE, f"concurrent P95: {compared.p95.reason}")
    else:
        yield tail_check("concurrent P95", compared.p95, policy)


def _gain(name: str, pair: QuantilePair, policy: Policy) -> Check:
    low, high = 1 - pair.ratio.high, 1 - pair.ratio.low
    seen = (
        f"{name} {duration(pair.normal_ns)} normal, {duration(pair.graph_ns)} graph, "
        f"gain {percent(1 - pair.ratio.ratio)} ({percent(low)} to {percent(high)})"
    )
    if pair.ratio.low > 1 + pair.noise.upper:
        return fails(Reason.REGRESS, f"graphs are slower: {seen}")
    if high < policy.min_gain:
        return fails(Reason.NO_GAIN, f"{seen}, below the minimum {percent(policy.min_gain)}")
    needed = max(policy.min_gain, pair.noise.upper)
    if low > needed:
        return holds(seen)
    beyond = "the noise floor" if pair.noise.upper > policy.min_gain else "the minimum"
    return undecided(Reason.UNMEASURABLE, f"{seen}: not clearly beyond {beyond} {percent(needed)}")
